//! A Chroma server as the place for pieces: an index that many share. Vectors are made here, by
//! the model; the server keeps them with texts and marks, and finds the nearest. Words count
//! among what it finds, since it ranks by vectors alone.
//!
//! A namespace is a collection of its own, and so are the workspace's files.

mod client;
mod items;

use std::collections::HashSet;
use std::sync::Arc;

use callgate_call::Cancel;
use callgate_dial::Dialer;
use callgate_store::search::SearchDb;
use serde_json::{Value, json};

pub use client::Place;

use crate::engine::{
    Answer, Ask, Engine, FUSED_MAX, Found, Item, RERANK, SearchError, query_words,
};
use crate::fuse::{fused, weight};
use crate::lexical::Lexical;
use crate::model::{MODEL, ModelError, model_id};
use crate::scan::from_bytes;
use crate::slots::Mask;
use crate::store::VectorStore;
use crate::words::{Word, counted};
use client::{Client, Collection, Talk};
use items::{filter, found, item};

/// Items that are given or taken in one question.
const BATCH: usize = 128;
const KEYS_AT_ONCE: usize = 1000;
/// Items that are looked at for one answer, when most do not pass a filter.
const LOOKED_AT_MAX: usize = 20_000;

/// A server, and the engine that cuts and embeds for it.
pub struct Chroma {
    client: Client,
    place: Place,
    engine: Arc<Engine>,
}

impl Chroma {
    /// A server, which is not asked yet. The error is a place that can be none.
    pub fn new(place: Place, engine: Arc<Engine>, dialer: Arc<Dialer>) -> Result<Self, String> {
        let client = Client::new(dialer, &place)?;
        Ok(Self {
            client,
            place,
            engine,
        })
    }

    /// The collection of a namespace. Any text may be one, and few are names of collections.
    fn name(&self, namespace: &str) -> String {
        let files = &self.place.collection;
        match namespace {
            "" => files.clone(),
            named => {
                let hash = blake3::hash(named.as_bytes()).to_hex();
                format!("{files}-{}", &hash[..32])
            }
        }
    }

    /// What the local index remembers this server by.
    fn server(&self) -> String {
        let Place {
            tenant,
            database,
            collection,
            ..
        } = &self.place;
        format!("{}{tenant}/{database}/{collection}", self.client.url())
    }

    /// A vector of the query, and how long it took to make.
    fn vector(&self, ask: &Ask, of: &Collection) -> Result<(Vec<f32>, Option<u64>), SearchError> {
        if let Some(embedding) = &ask.embedding {
            return Ok((embedding.clone(), None));
        }
        self.check_model(of, &ask.namespace)?;
        match self
            .engine
            .embedded(ask.query.as_deref().unwrap_or_default())?
        {
            Some((vector, took)) => Ok((vector, Some(took))),
            None => Err(ModelError::Missing.into()),
        }
    }

    fn check_model(&self, of: &Collection, namespace: &str) -> Result<(), SearchError> {
        let ours = model_id();
        match &of.model {
            Some(model) if *model == ours => Ok(()),
            None if !namespace.is_empty() => {
                let reason = "the vectors of this namespace are of no model that is here: give one";
                Err(SearchError::wrong("embedding", reason))
            }
            has => {
                let has = has.clone().unwrap_or_else(|| "no known model".to_owned());
                Err(SearchError::OtherModel { has, ours })
            }
        }
    }

    /// Up to `wanted` of the nearest that pass. Where many have to be looked at, texts and
    /// vectors are asked for once it is known whose: a server's answer has a bound.
    fn near(
        &self,
        server: Talk<'_>,
        of: &Collection,
        vector: &[f32],
        ask: &Ask,
        may: &dyn Fn(&str) -> bool,
        wanted: usize,
    ) -> Result<Vec<Found>, SearchError> {
        let prefix = ask.path_prefix.trim_start_matches("./");
        let mut body = json!({ "query_embeddings": [vector] });
        if let Some(filter) = filter(prefix, &ask.tags) {
            body["where"] = filter;
        }
        let mut looked_at = wanted;
        loop {
            let is_first = looked_at == wanted;
            let mut include = vec!["metadatas", "distances"];
            if is_first {
                include.extend(whole(ask));
            }
            body["include"] = json!(include);
            body["n_results"] = json!(looked_at);
            let told = server.ask(of, "query", &body)?;
            let all = found(&told).ok_or_else(|| server.odd("query"))?;
            let count = all.len();
            let passes = |one: &Found| {
                let path = &one.told.path;
                path.starts_with(prefix) && (!ask.namespace.is_empty() || may(path))
            };
            let mut near: Vec<Found> = all.into_iter().filter(passes).collect();
            if near.len() >= wanted || count < looked_at || looked_at >= LOOKED_AT_MAX {
                near.truncate(wanted);
                if !is_first && !near.is_empty() {
                    fill(server, of, ask, &mut near)?;
                }
                return Ok(near);
            }
            looked_at = (looked_at * 8).min(LOOKED_AT_MAX);
        }
    }

    /// Vectors of items that bring none.
    fn embed(&self, items: &mut [Item], stop: &Cancel) -> Result<(), SearchError> {
        for item in items.iter_mut().filter(|item| item.embedding.is_none()) {
            if stop.is_cancelled() {
                return Err(SearchError::Stopped);
            }
            let Some((vector, _)) = self.engine.embedded(&item.chunk.text)? else {
                let reason = "a vector server keeps no text without one, and no model is installed";
                return Err(SearchError::wrong("items.embedding", reason));
            };
            item.embedding = Some(vector);
        }
        Ok(())
    }

    /// Gives the server what it has not; how many pieces.
    fn give(
        &self,
        server: Talk<'_>,
        db: &mut SearchDb,
        to: &Collection,
    ) -> Result<usize, SearchError> {
        let (name, mut given) = (self.server(), 0);
        loop {
            let some = db.unpushed(&name, MODEL, BATCH)?;
            if some.is_empty() {
                return Ok(given);
            }
            let items = some.iter().map(|one| (&one.told, from_bytes(&one.vector)));
            server.ask(to, "upsert", &items::upsert(items))?;
            let step = db.begin()?;
            for one in &some {
                step.put_pushed(&name, &one.told.key, one.chunk)?;
            }
            step.commit()?;
            given += some.len();
        }
    }

    /// Takes from the server what is no more; how many pieces.
    fn take(
        &self,
        server: Talk<'_>,
        db: &mut SearchDb,
        from: &Collection,
    ) -> Result<usize, SearchError> {
        let (name, mut taken) = (self.server(), 0);
        loop {
            let keys = db.pushed_in_vain(&name, KEYS_AT_ONCE)?;
            if keys.is_empty() {
                return Ok(taken);
            }
            server.ask(from, "delete", &json!({ "ids": keys }))?;
            let step = db.begin()?;
            for key in &keys {
                step.remove_pushed(&name, key)?;
            }
            step.commit()?;
            taken += keys.len();
        }
    }

    /// Removes what the server has and no file here; how many pieces.
    fn clear(
        &self,
        server: Talk<'_>,
        db: &SearchDb,
        of: &Collection,
    ) -> Result<usize, SearchError> {
        let mut strange: HashSet<String> = HashSet::new();
        let mut offset = 0;
        loop {
            let page = json!({ "limit": KEYS_AT_ONCE, "offset": offset, "include": [] });
            let told = server.ask(of, "get", &page)?;
            let keys = told["ids"].as_array().ok_or_else(|| server.odd("get"))?;
            for key in keys.iter().filter_map(Value::as_str) {
                if !db.has_key(key)? {
                    strange.insert(key.to_owned());
                }
            }
            offset += keys.len();
            if keys.len() < KEYS_AT_ONCE {
                break;
            }
        }
        let all: Vec<&String> = strange.iter().collect();
        for some in all.chunks(KEYS_AT_ONCE) {
            server.ask(of, "delete", &json!({ "ids": some }))?;
        }
        Ok(all.len())
    }
}

impl VectorStore for Chroma {
    fn search(
        &self,
        ask: &Ask,
        may: &dyn Fn(&str) -> bool,
        stop: &Cancel,
    ) -> Result<Answer, SearchError> {
        let words = query_words(ask)?;
        let server = self.client.until(stop);
        let Some(of) = server.find(&self.name(&ask.namespace))? else {
            return match ask.namespace.is_empty() {
                true => Err(SearchError::Missing),
                false => Ok(Answer::default()),
            };
        };
        let asked = self.vector(ask, &of).and_then(|(vector, time_ms)| {
            check(vector.len(), of.dimensions, "embedding")?;
            Ok((vector, time_ms))
        });
        let (vector, time_ms) = match asked {
            // An empty namespace is as good as none, whatever was in it before.
            Err(_) if !ask.namespace.is_empty() && server.count(&of)? == 0 => {
                return Ok(Answer::default());
            }
            asked => asked?,
        };
        let fuses = ask.rerank && !words.is_empty();
        let wanted = if fuses {
            ask.top_k.max(FUSED_MAX)
        } else {
            ask.top_k
        };
        let mut found = self.near(server, &of, &vector, ask, may, wanted)?;
        if fuses {
            found = by_both(found, ask, &words);
        }
        found.truncate(ask.top_k);
        Ok(Answer {
            found,
            embedding_model: time_ms.map(|_| MODEL.to_owned()),
            embed_time_ms: time_ms,
            rerank_model: fuses.then(|| RERANK.to_owned()),
        })
    }

    fn upsert(
        &self,
        namespace: &str,
        mut items: Vec<Item>,
        stop: &Cancel,
    ) -> Result<usize, SearchError> {
        let server = self.client.until(stop);
        let name = self.name(namespace);
        let is_ours = items.iter().any(|item| item.embedding.is_none());
        let known = server.find(&name)?;
        if let Some(known) = known.as_ref().filter(|_| is_ours)
            && let Err(error) = self.check_model(known, namespace)
            && server.count(known)? > 0
        {
            return Err(error);
        }
        self.embed(&mut items, stop)?;
        let mut dimensions = None;
        for item in &items {
            let length = item.embedding.as_ref().map_or(0, Vec::len);
            check(length, dimensions, "items.embedding")?;
            dimensions = Some(length);
        }
        let model = is_ours.then(model_id);
        let to = match known {
            Some(known) => room(server, (&name, known), dimensions, model)?,
            None => server.make(&name, model.as_deref())?,
        };
        let count = items.len();
        let all: Vec<_> = items.into_iter().map(item).collect();
        let all = all.iter().map(|(told, vector)| (told, vector.clone()));
        server.ask(&to, "upsert", &items::upsert(all))?;
        Ok(count)
    }

    fn delete(
        &self,
        namespace: &str,
        keys: &[String],
        stop: &Cancel,
    ) -> Result<usize, SearchError> {
        let server = self.client.until(stop);
        let name = self.name(namespace);
        let Some(from) = server.find(&name)? else {
            return Ok(0);
        };
        let there = json!({ "ids": keys, "include": [] });
        let there = server.ask(&from, "get", &there)?;
        let count = there["ids"].as_array().map_or(0, Vec::len);
        if count > 0 {
            let ids = json!({ "ids": there["ids"] });
            server.ask(&from, "delete", &ids)?;
        }
        Ok(count)
    }

    fn take_over(&self, whole: bool, stop: &Cancel) -> Result<usize, SearchError> {
        let mut db = SearchDb::open(&self.engine.state)?.ok_or(SearchError::Missing)?;
        db.prepare_pushed()?;
        let (server, here) = (self.client.until(stop), self.server());
        if !whole && db.pushed(&here)? == 0 && db.unpushed(&here, MODEL, 1)?.is_empty() {
            return Ok(0);
        }
        let (name, model) = (self.name(""), model_id());
        let to = match server.find(&name)? {
            Some(to) => to,
            None => server.make(&name, Some(&model))?,
        };
        self.check_model(&to, "")?;
        let is_known = to.mark.is_some() && to.mark == db.pushed_mark(&here)?;
        let compares = whole && !(is_known && server.count(&to)? == db.pushed(&here)?);
        if compares {
            // Somebody else has put or removed something, or the server is a new one.
            let step = db.begin()?;
            step.forget_pushed(&here)?;
            step.commit()?;
        } else if db.unpushed(&here, MODEL, 1)?.is_empty()
            && db.pushed_in_vain(&here, 1)?.is_empty()
        {
            return Ok(0);
        }
        // Before anything changes: whoever comes next compares all, should we be killed as well.
        let mark = SearchDb::fresh_mark()?;
        server.describe(&to, Some(&model), Some(&mark))?;
        let mut changed = 0;
        if compares {
            changed += self.clear(server, &db, &to)?;
        }
        changed += self.give(server, &mut db, &to)?;
        changed += self.take(server, &mut db, &to)?;
        let is_alone = server
            .find(&name)?
            .is_some_and(|to| to.mark.as_ref() == Some(&mark));
        if !is_alone {
            // Nobody knows whose pieces are there now, so all who share it compare.
            server.describe(&to, Some(&model), Some(&SearchDb::fresh_mark()?))?;
        }
        let knows = is_alone && (compares || is_known);
        let step = db.begin()?;
        step.set_pushed_mark(&here, if knows { &mark } else { "" })?;
        step.commit()?;
        Ok(changed)
    }
}

/// Where vectors of this length and model go. A collection that is empty takes any: it is made anew
/// for those of another length alone, since what others put into it meanwhile would go with it.
fn room(
    server: Talk<'_>,
    (name, known): (&str, Collection),
    dimensions: Option<usize>,
    model: Option<String>,
) -> Result<Collection, SearchError> {
    let check = |length| check(length, known.dimensions, "items.embedding");
    let misfit = dimensions.and_then(|length| check(length).err());
    if (misfit.is_none() && known.model == model) || server.count(&known)? > 0 {
        return misfit.map_or(Ok(known), Err);
    }
    if misfit.is_some() {
        server.drop(name)?;
        return server.make(name, model.as_deref());
    }
    server.describe(&known, model.as_deref(), known.mark.as_deref())?;
    Ok(known)
}

/// What is asked for of pieces beside their marks.
fn whole(ask: &Ask) -> Vec<&'static str> {
    let mut include = vec!["documents"];
    if ask.include_vectors {
        include.push("embeddings");
    }
    include
}

/// Asks for the texts of what was found without them, and for vectors if they are wanted.
fn fill(
    server: Talk<'_>,
    of: &Collection,
    ask: &Ask,
    near: &mut [Found],
) -> Result<(), SearchError> {
    let ids: Vec<&str> = near.iter().map(|found| found.told.key.as_str()).collect();
    let body = json!({ "ids": ids, "include": whole(ask) });
    let told = server.ask(of, "get", &body)?;
    let mut rest = items::rest(&told).ok_or_else(|| server.odd("get"))?;
    for found in near {
        if let Some((text, vector)) = rest.remove(&found.told.key) {
            found.told.text = text;
            found.vector = vector;
        }
    }
    Ok(())
}

fn check(length: usize, wanted: Option<usize>, field: &'static str) -> Result<(), SearchError> {
    match wanted {
        Some(wanted) if wanted != length => {
            let reason = format!("has {length} numbers, the vectors of the index have {wanted}");
            Err(SearchError::wrong(field, reason))
        }
        _ => Ok(()),
    }
}

/// What is near, ranked by words as well.
fn by_both(near: Vec<Found>, ask: &Ask, words: &[Word]) -> Vec<Found> {
    let mut lexical = Lexical::default();
    for found in &near {
        let all = counted(&[&found.told.path, &found.told.text]);
        lexical.add(all.into_iter());
    }
    lexical.settle();
    let mask = Mask::all(near.len());
    let by_words = lexical.search(words, &mask, near.len());
    let by_vector: Vec<(u32, f32)> = (0..)
        .zip(&near)
        .map(|(place, found)| (place, found.score))
        .collect();
    let query = ask.query.as_deref().unwrap_or_default();
    let mut near: Vec<Option<Found>> = near.into_iter().map(Some).collect();
    let both = fused(&by_words, &by_vector, weight(query)).into_iter();
    both.filter_map(|(place, score)| {
        let found = near.get_mut(place as usize)?.take()?;
        Some(Found { score, ..found })
    })
    .collect()
}
