//! What is in memory of the index, and how it answers.

use std::collections::HashMap;
use std::path::Path;

use callgate_store::search::{Row1, SearchDb, Told};

use super::embed::other_model;
use super::{Answer, Ask, Found, SearchError};
use crate::fuse::{fused, weight};
use crate::lexical::{Lexical, SLOTS_MAX};
use crate::model::id_of;
use crate::scan::{NO_ROW, Space, cosine, from_bytes};
use crate::slots::{Marks, Mask, Slot, Slots, Wanted};
use crate::words::{self, Word};

/// So many dead pieces, and a fifth of all, and the whole is read anew.
const DEAD_MIN: usize = 1000;
/// Places of each ranking that are made one.
pub const FUSED_MAX: usize = 100;
/// Of what seems near, so many are compared in full if they can not be told apart otherwise;
/// twice as many as are asked for, if that is more.
const RESCORED_MIN: usize = 64;
/// What `usage` calls that.
pub const RERANK: &str = "reciprocal-rank";
/// How an index without files' vectors is to get some.
const NO_MODEL: &str = "no model has made any yet";

pub struct Loaded {
    db: SearchDb,
    /// What SQLite said when it was last looked at.
    version: i64,
    /// The newest piece that is here.
    last: i64,
    /// The newest mark of what went.
    gone: i64,
    /// The newest vector.
    vector: i64,
    slots: Slots,
    lexical: Lexical,
    /// By model; what programs brought has one of its namespace's own.
    spaces: HashMap<String, Space>,
    /// The model whose vectors the pieces of files have.
    model: Option<String>,
    other_model: Option<String>,
}

/// The space of what programs put into a namespace.
pub fn space_of(namespace: &str) -> String {
    format!("namespace:{namespace}")
}

impl Loaded {
    pub fn read(db: SearchDb) -> Result<Self, SearchError> {
        let mut this = Self {
            version: db.data_version()?,
            last: 0,
            gone: 0,
            vector: 0,
            slots: Slots::default(),
            lexical: Lexical::default(),
            spaces: HashMap::new(),
            model: None,
            other_model: None,
            db,
        };
        this.in_one_view(|this| {
            this.gone = this.db.gone_mark()?;
            this.add_new()
        })?;
        Ok(this)
    }

    /// True while what is here is of the file that is there.
    pub fn is_of(&self, state: &Path) -> bool {
        self.db.is_of(state)
    }

    /// The model that has made vectors of files, if it is not ours.
    pub fn other_model(&self) -> Option<String> {
        self.other_model.clone()
    }

    /// True if pieces of files have vectors of this model.
    pub fn has_vectors_of(&self, model: &str) -> bool {
        self.model.as_deref() == Some(model) && self.spaces.contains_key(model)
    }

    /// Takes over what changed; false if all must be read anew.
    pub fn follow(&mut self) -> Result<bool, SearchError> {
        let version = self.db.data_version()?;
        if version == self.version {
            return Ok(true);
        }
        self.version = version;
        self.in_one_view(Self::follow_view)
    }

    fn follow_view(&mut self) -> Result<bool, SearchError> {
        let Some((gone, mark)) = self.db.gone_after(self.gone)? else {
            return Ok(false);
        };
        self.gone = mark;
        for id in gone {
            self.slots.bury(id);
        }
        if self.slots.dead > DEAD_MIN && self.slots.dead * 5 > self.slots.all.len() {
            return Ok(false);
        }
        self.add_new()?;
        Ok(true)
    }

    /// Pieces and their vectors are read as they are at one time: of a piece that was not there
    /// yet, the vector would be taken for nobody's.
    fn in_one_view<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SearchError>,
    ) -> Result<T, SearchError> {
        self.db.begin_view()?;
        let done = read(self);
        self.db.end_view()?;
        done
    }

    fn add_new(&mut self) -> Result<(), SearchError> {
        let model = self.db.meta("model")?;
        let other = other_model(&self.db)?;
        self.other_model = other.map(|(name, digest)| id_of(&name, &digest));
        if model != self.model {
            self.model = model;
            // Rows are of the other model.
            self.slots.rows.fill(NO_ROW);
            self.vector = 0;
        }
        let mut rows = Vec::new();
        self.db.chunks_after(self.last, |row| rows.push(row))?;
        let any = !rows.is_empty();
        for row in rows {
            self.last = row.id;
            if self.slots.all.len() < SLOTS_MAX {
                self.add(&row);
            }
        }
        if any {
            self.lexical.settle();
        }
        self.add_vectors()
    }

    fn add(&mut self, row: &Row1) {
        let number = u32::try_from(self.slots.all.len()).unwrap_or(u32::MAX);
        // What programs bring has its vector put after it, or none.
        let space = self.model.as_ref().filter(|_| row.namespace.is_empty());
        let space = space.and_then(|model| self.spaces.get(model));
        let slots = &mut self.slots;
        slots.by_id.insert(row.id, number);
        slots.by_hash.entry(row.hash).or_default().push(number);
        slots.all.push(Slot {
            id: row.id,
            hash: row.hash,
        });
        slots.marks.push(Marks {
            namespace: slots.namespaces.number(&row.namespace),
            path: slots.paths.number(&row.path),
            tags: slots.tags.number(&row.tags),
        });
        let known = space.map_or(NO_ROW, |space| space.row(&row.hash));
        slots.rows.push(known);
        self.lexical.add(words::unpacked(&row.words));
    }

    fn space_name(&self, namespace: &str) -> Option<String> {
        match namespace {
            "" => self.model.clone(),
            named => Some(space_of(named)),
        }
    }

    fn add_vectors(&mut self) -> Result<(), SearchError> {
        let Self {
            db,
            slots,
            spaces,
            model,
            ..
        } = self;
        let newest = db.vectors_after(self.vector, |of, hash, bytes| {
            let space = spaces.entry(of.to_owned()).or_default();
            let row = space.add(hash, &from_bytes(bytes));
            for slot in slots.by_hash.get(&hash).into_iter().flatten() {
                let slot = *slot as usize;
                let namespace = slots.namespaces.text(slots.marks[slot].namespace);
                let is_its = match namespace {
                    "" => model.as_deref() == Some(of),
                    named => of == space_of(named),
                };
                if is_its {
                    slots.rows[slot] = row;
                }
            }
        })?;
        if newest != self.vector {
            self.spaces.values_mut().for_each(Space::settle);
        }
        self.vector = newest;
        Ok(())
    }

    pub fn answer(
        &self,
        ask: &Ask,
        words: &[Word],
        may: &dyn Fn(&str) -> bool,
    ) -> Result<Answer, SearchError> {
        let mask = self.slots.mask(&Wanted {
            namespace: &ask.namespace,
            path_prefix: ask.path_prefix.trim_start_matches("./"),
            tags: &ask.tags,
        });
        if !ask.namespace.is_empty() && !self.slots.is_used(&ask.namespace) {
            return Ok(Answer::default());
        }
        // What may not be told is rare, since it is not indexed; then there is a second look.
        let mut k = ask.top_k;
        loop {
            let (ranked, mut answer) = self.ranked(ask, words, &mask, k)?;
            let all = ranked.len();
            for (slot, score) in ranked {
                let known = &self.slots.all[slot as usize];
                let path = self.slots.paths.text(self.slots.marks[slot as usize].path);
                if answer.found.len() < ask.top_k
                    && (!ask.namespace.is_empty() || may(path))
                    && let Some(told) = self.db.told(known.id)?
                {
                    let vector = match ask.include_vectors {
                        true => self.vector_of(&ask.namespace, &told)?,
                        false => None,
                    };
                    answer.found.push(Found {
                        told,
                        score,
                        vector,
                    });
                }
            }
            if answer.found.len() == ask.top_k || all < k {
                return Ok(answer);
            }
            k *= 8;
        }
    }

    fn vector_of(&self, namespace: &str, told: &Told) -> Result<Option<Vec<f32>>, SearchError> {
        let Some(space) = self.space_name(namespace) else {
            return Ok(None);
        };
        let bytes = self.db.vector(&space, told.hash)?;
        Ok(bytes.map(|bytes| from_bytes(&bytes)))
    }

    /// The `k` best, and how they were found.
    fn ranked(
        &self,
        ask: &Ask,
        words: &[Word],
        mask: &Mask,
        k: usize,
    ) -> Result<(Vec<(u32, f32)>, Answer), SearchError> {
        let Some(embedding) = &ask.embedding else {
            return Ok((self.lexical.search(words, mask, k), Answer::default()));
        };
        let fuses = ask.rerank && !words.is_empty();
        let wide = if fuses { k.max(FUSED_MAX) } else { k };
        let near = self.near(&ask.namespace, embedding, mask, wide)?;
        if !fuses {
            return Ok((near, Answer::default()));
        }
        let lexical = self.lexical.search(words, mask, wide);
        let query = ask.query.as_deref().unwrap_or_default();
        let mut both = fused(&lexical, &near, weight(query));
        both.truncate(k);
        let answer = Answer {
            rerank_model: Some(RERANK.to_owned()),
            ..Answer::default()
        };
        Ok((both, answer))
    }

    /// The `k` nearest, compared in full.
    fn near(
        &self,
        namespace: &str,
        to: &[f32],
        mask: &Mask,
        k: usize,
    ) -> Result<Vec<(u32, f32)>, SearchError> {
        let name = self.space_name(namespace);
        let space = name.as_ref().and_then(|name| self.spaces.get(name));
        let (Some(name), Some(space)) = (name, space) else {
            return Err(SearchError::NoVectors(NO_MODEL.to_owned()));
        };
        if to.len() != space.dimensions {
            let (has, wants) = (to.len(), space.dimensions);
            let reason = format!("has {has} numbers, the vectors of the index have {wants}");
            return Err(SearchError::wrong("embedding", reason));
        }
        let seems = space.near(to, &self.slots.rows, mask, k, (2 * k).max(RESCORED_MIN));
        let mut near = Vec::with_capacity(seems.len());
        for (slot, about) in seems {
            let hash = self.slots.all[slot as usize].hash;
            let bytes = self.db.vector(&name, hash)?;
            let score = bytes.map_or(about, |bytes| cosine(to, &from_bytes(&bytes)));
            near.push((slot, score));
        }
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        near.truncate(k);
        Ok(near)
    }
}
