//! Plans and their tasks. A plan is named by the record that made it; a change of a task is a
//! record of its own, so that a large plan costs no more to work on than a small one. Whoever
//! follows is told in the order of the journal, by whichever process the changes come.

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_call::Timestamp;
use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::state::Inner;
use crate::{Store, StoreError, records};

/// Plans of a workspace; at the bound a new one is refused.
pub const PLANS_MAX: usize = 1000;
/// Tasks of one plan.
pub const TASKS_MAX: usize = 1000;
/// All text of one plan.
pub const PLAN_BYTES_MAX: usize = 256 * 1024;

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody has begun.
    Todo,
    /// Somebody is at it.
    InProgress,
    /// It is done.
    Done,
    /// Something is in the way.
    Blocked,
}

impl TaskStatus {
    /// The contract's words.
    pub const ALL: [Self; 4] = [Self::Todo, Self::InProgress, Self::Done, Self::Blocked];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Todo => "todo",
            Self::InProgress => "in_progress",
            Self::Done => "done",
            Self::Blocked => "blocked",
        }
    }

    /// The status of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// One thing to do. Its name in the plan is its place, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What.
    pub description: String,
    /// How far it is.
    pub status: TaskStatus,
    /// Whose it is.
    pub assignee_role: String,
    /// The place of the task it is part of.
    pub parent: Option<usize>,
}

impl Task {
    fn bytes(&self) -> usize {
        self.description.len() + self.assignee_role.len()
    }
}

/// A plan without its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHead {
    /// Its name.
    pub id: PlanId,
    /// What it is about.
    pub title: String,
    /// What came along with the request.
    pub description: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it, or a task of it, was changed.
    pub updated_at: Timestamp,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All but its tasks.
    pub head: PlanHead,
    /// In their order.
    pub tasks: Vec<Task>,
}

/// Names a plan: the number of the record that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(pub u64);

impl PlanId {
    /// Reads `p` and a number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.strip_prefix('p')?.parse().ok()?;
        // One spelling each: no sign, no zeros before it.
        (format!("p{number}") == text).then_some(Self(number))
    }
}

impl std::fmt::Display for PlanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A plan to be made.
#[derive(Clone, Debug)]
pub struct NewPlan {
    /// What it is about.
    pub title: String,
    /// What came along with the request.
    pub description: Option<String>,
    /// In their order; a parent stands before its children.
    pub tasks: Vec<Task>,
}

/// What is to become of a task; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPatch {
    /// What.
    pub description: Option<String>,
    /// How far it is.
    pub status: Option<TaskStatus>,
    /// Whose it is.
    pub assignee_role: Option<String>,
}

/// What became of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanNews {
    /// It was made.
    Made(PlanHead),
    /// A task of it, at this place, is now so.
    Task {
        /// The plan.
        plan: PlanId,
        /// The task's place, counted from 1.
        place: usize,
        /// The task.
        task: Task,
        /// Those that are part of it.
        children: Vec<usize>,
        /// When.
        at: Timestamp,
    },
    /// It was removed.
    Gone {
        /// The plan.
        plan: PlanId,
        /// When.
        at: Timestamp,
    },
}

/// Hears what becomes of plans. It must not use the store.
pub type PlanEar = Arc<dyn Fn(PlanNews) + Send + Sync>;

/// A plan's first record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanDoc {
    pub(crate) id: u64,
    pub(crate) head: HeadDoc,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeadDoc {
    pub(crate) title: String,
    pub(crate) description: Option<String>,
    pub(crate) created_at: u64,
}

/// A later state of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskDoc {
    pub(crate) plan: u64,
    /// From 0.
    pub(crate) index: usize,
    pub(crate) task: Task,
    /// Indexes of those that are part of it: whoever hears of it wants them, and has no index.
    pub(crate) children: Vec<usize>,
    pub(crate) at: u64,
}

/// The end of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoneDoc {
    pub(crate) plan: u64,
    pub(crate) at: u64,
}

/// What is known of a plan beyond the index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanEntry {
    /// The newest record about it.
    pub(crate) seq: u64,
    pub(crate) since: Since,
    pub(crate) updated_at: u64,
    /// By index.
    pub(crate) tasks: BTreeMap<usize, Task>,
}

/// How an entry stands to what the index has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Since {
    /// All of the plan is here.
    Made(HeadDoc),
    /// The rest is there.
    Changed,
    /// Whatever is there is over.
    Gone,
}

/// The plans since the watermark, and who hears of them.
#[derive(Default)]
pub(crate) struct Plans {
    pub(crate) entries: BTreeMap<u64, PlanEntry>,
    /// The newest record that was told, and to whom.
    ear: Option<(u64, PlanEar)>,
}

impl Plans {
    pub(crate) fn made(&mut self, seq: u64, doc: PlanDoc) {
        let entry = PlanEntry {
            seq,
            updated_at: doc.head.created_at,
            since: Since::Made(doc.head),
            tasks: doc.tasks.into_iter().enumerate().collect(),
        };
        self.tell(seq, || PlanNews::Made(head_of(doc.id, &entry)));
        self.entries.insert(doc.id, entry);
    }

    pub(crate) fn task(&mut self, seq: u64, doc: TaskDoc) {
        self.tell(seq, || PlanNews::Task {
            plan: PlanId(doc.plan),
            place: doc.index + 1,
            task: doc.task.clone(),
            children: doc.children.iter().map(|index| index + 1).collect(),
            at: Timestamp(doc.at),
        });
        let entry = self.entries.entry(doc.plan).or_insert(PlanEntry {
            seq,
            since: Since::Changed,
            updated_at: doc.at,
            tasks: BTreeMap::new(),
        });
        entry.seq = seq;
        entry.updated_at = doc.at;
        entry.tasks.insert(doc.index, doc.task);
    }

    pub(crate) fn gone(&mut self, seq: u64, doc: &GoneDoc) {
        self.tell(seq, || PlanNews::Gone {
            plan: PlanId(doc.plan),
            at: Timestamp(doc.at),
        });
        let entry = PlanEntry {
            seq,
            since: Since::Gone,
            updated_at: doc.at,
            tasks: BTreeMap::new(),
        };
        self.entries.insert(doc.plan, entry);
    }

    /// Once for each record: the journal may be read again.
    fn tell(&mut self, seq: u64, news: impl FnOnce() -> PlanNews) {
        if let Some((told, ear)) = &mut self.ear
            && seq > *told
        {
            *told = seq;
            ear(news());
        }
    }

    pub(crate) fn trim(&mut self, seq: u64) {
        self.entries.retain(|_, entry| entry.seq > seq);
    }

    /// Forgets all but who hears.
    pub(crate) fn reset(&mut self) {
        self.entries.clear();
    }
}

/// The head of a plan that is all in the overlay.
fn head_of(id: u64, entry: &PlanEntry) -> PlanHead {
    let Since::Made(head) = &entry.since else {
        unreachable!("only asked of whole plans");
    };
    head.head(id, entry.updated_at)
}

impl HeadDoc {
    fn head(&self, id: u64, updated_at: u64) -> PlanHead {
        PlanHead {
            id: PlanId(id),
            title: self.title.clone(),
            description: self.description.clone(),
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(updated_at),
        }
    }
}

impl Store {
    /// Makes a plan; it is in the file on return.
    pub fn create_plan(&self, new: NewPlan) -> Result<Plan, StoreError> {
        check(&new)?;
        self.commit(|inner, now| {
            if inner.plan_ids()?.len() >= PLANS_MAX {
                let reason = format!("there are {PLANS_MAX} plans: delete some first");
                return Err(StoreError::Refused { reason });
            }
            let id = inner.journal.position().seq + inner.pending.mark() as u64 + 1;
            let doc = PlanDoc {
                id,
                head: HeadDoc {
                    title: new.title,
                    description: new.description,
                    created_at: now.0,
                },
                tasks: new.tasks,
            };
            records::plan_create(&mut inner.pending, now, &doc);
            Ok(Plan {
                head: doc.head.head(id, now.0),
                tasks: doc.tasks,
            })
        })
    }

    /// A plan with its tasks.
    pub fn plan(&self, id: PlanId) -> Result<Option<Plan>, StoreError> {
        self.read(|inner, _| inner.plan(id))
    }

    /// Changes a task, by its place. Two that change different fields both count.
    pub fn update_task(
        &self,
        id: PlanId,
        place: usize,
        patch: &TaskPatch,
    ) -> Result<Plan, StoreError> {
        self.commit(|inner, now| {
            let missing = |what: String| StoreError::NotFound { what };
            let found = inner.plan(id)?;
            let mut plan = found.ok_or_else(|| missing(format!("plan {id}")))?;
            let index = place.wrapping_sub(1);
            let Some(task) = plan.tasks.get_mut(index) else {
                return Err(missing(format!("task t{place} of plan {id}")));
            };
            if *patch == TaskPatch::default() {
                return Ok(plan);
            }
            patch.apply(task);
            let task = task.clone();
            plan.check_bytes()?;
            // A clock that was set back must not make it look older.
            let at = now.max(plan.head.updated_at);
            plan.head.updated_at = at;
            let doc = TaskDoc {
                plan: id.0,
                index,
                task,
                children: plan.children(index),
                at: at.0,
            };
            records::plan_task(&mut inner.pending, now, &doc);
            Ok(plan)
        })
    }

    /// Plans in the order they were made, those after `after` and at most `limit`; and whether
    /// there are more.
    pub fn plans(
        &self,
        after: Option<PlanId>,
        limit: usize,
    ) -> Result<(Vec<PlanHead>, bool), StoreError> {
        self.read(|inner, _| {
            let ids = inner.plan_ids()?;
            let mut ids = ids.into_iter().filter(|id| after.is_none_or(|a| *id > a.0));
            let mut heads = Vec::new();
            for id in ids.by_ref().take(limit) {
                heads.extend(inner.plan_head(id)?);
            }
            Ok((heads, ids.next().is_some()))
        })
    }

    /// Removes a plan. False if there is none.
    pub fn delete_plan(&self, id: PlanId) -> Result<bool, StoreError> {
        self.commit(|inner, now| {
            if inner.plan_head(id.0)?.is_none() {
                return Ok(false);
            }
            let doc = GoneDoc {
                plan: id.0,
                at: now.0,
            };
            records::plan_delete(&mut inner.pending, now, &doc);
            Ok(true)
        })
    }

    /// From now on `ear` hears what becomes of plans, in the order of the journal, as this
    /// process reads it.
    pub fn follow_plans(&self, ear: PlanEar) -> Result<(), StoreError> {
        self.read(|inner, _| {
            let here = inner.journal.position().seq;
            inner.overlay.plans.ear = Some((here, ear));
            Ok(())
        })
    }

    /// Reads what other processes wrote, so that whoever follows hears of it.
    pub fn look(&self) -> Result<(), StoreError> {
        self.read(|_, _| Ok(()))
    }
}

impl TaskPatch {
    fn apply(&self, task: &mut Task) {
        if let Some(description) = &self.description {
            task.description.clone_from(description);
        }
        if let Some(status) = self.status {
            task.status = status;
        }
        if let Some(role) = &self.assignee_role {
            task.assignee_role.clone_from(role);
        }
    }
}

impl Plan {
    /// Indexes of the tasks that are part of the one at `index`.
    #[must_use]
    pub fn children(&self, index: usize) -> Vec<usize> {
        let tasks = self.tasks.iter().enumerate();
        tasks
            .filter(|(_, task)| task.parent == Some(index))
            .map(|(index, _)| index)
            .collect()
    }

    fn check_bytes(&self) -> Result<(), StoreError> {
        let about = self.head.title.len() + self.head.description.as_ref().map_or(0, String::len);
        check_bytes(about, &self.tasks)
    }
}

fn check(new: &NewPlan) -> Result<(), StoreError> {
    if new.tasks.len() > TASKS_MAX {
        let reason = format!("a plan has at most {TASKS_MAX} tasks");
        return Err(StoreError::Refused { reason });
    }
    let about = new.title.len() + new.description.as_ref().map_or(0, String::len);
    check_bytes(about, &new.tasks)
}

fn check_bytes(about: usize, tasks: &[Task]) -> Result<(), StoreError> {
    if about + tasks.iter().map(Task::bytes).sum::<usize>() > PLAN_BYTES_MAX {
        return Err(StoreError::TooLarge {
            what: "plan",
            max_bytes: PLAN_BYTES_MAX,
        });
    }
    Ok(())
}

impl Inner {
    fn plan(&mut self, id: PlanId) -> Result<Option<Plan>, StoreError> {
        let Some(head) = self.plan_head(id.0)? else {
            return Ok(None);
        };
        let is_here = |entry: &PlanEntry| matches!(entry.since, Since::Made(_));
        let here = self.overlay.plans.entries.get(&id.0).is_some_and(is_here);
        let mut tasks = match self.plans_index()? {
            Some(index) if !here => index.plan_tasks(id.0)?,
            _ => BTreeMap::new(),
        };
        if let Some(entry) = self.overlay.plans.entries.get(&id.0) {
            tasks.extend(entry.tasks.clone());
        }
        let tasks = tasks.into_values().collect();
        Ok(Some(Plan { head, tasks }))
    }

    fn plan_head(&mut self, id: u64) -> Result<Option<PlanHead>, StoreError> {
        // First, since an index that is gone is the overlay's to make up for.
        let found = match self.plans_index()? {
            Some(index) => index.plan_head(id)?,
            None => None,
        };
        let newer = self.overlay.plans.entries.get(&id);
        Ok(match newer.map(|entry| (&entry.since, entry.updated_at)) {
            Some((Since::Made(head), at)) => Some(head.head(id, at)),
            Some((Since::Changed, at)) => found.map(|(head, _)| head.head(id, at)),
            Some((Since::Gone, _)) => None,
            None => found.map(|(head, at)| head.head(id, at)),
        })
    }

    /// All plans, in the order they were made.
    fn plan_ids(&mut self) -> Result<Vec<u64>, StoreError> {
        let mut ids = match self.plans_index()? {
            Some(index) => index.plan_ids()?,
            None => Vec::new(),
        };
        let entries = &self.overlay.plans.entries;
        ids.retain(|id| !entries.contains_key(id));
        let here = entries.iter().filter(|(_, e)| e.since != Since::Gone);
        ids.extend(here.map(|(id, _)| *id));
        ids.sort_unstable();
        Ok(ids)
    }

    fn plans_index(&mut self) -> Result<Option<&mut Index>, StoreError> {
        match &self.mark {
            Some(mark) if mark.plans => self.index(),
            _ => Ok(None),
        }
    }
}

impl Index {
    fn plan_ids(&self) -> Result<Vec<u64>, StoreError> {
        let mut select = self.db.prepare_cached("SELECT id FROM plans")?;
        let ids = select.query_map([], |row| row.get::<_, i64>(0))?;
        Ok(ids
            .map(|id| id.map(i64::unsigned_abs))
            .collect::<Result<_, _>>()?)
    }

    fn plan_head(&self, id: u64) -> Result<Option<(HeadDoc, u64)>, StoreError> {
        let select = "SELECT head, updated_at FROM plans WHERE id = ?1";
        let found: Option<(String, i64)> = self
            .db
            .prepare_cached(select)?
            .query_row([id as i64], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(found
            .and_then(|(head, at)| Some((serde_json::from_str(&head).ok()?, at.unsigned_abs()))))
    }

    fn plan_tasks(&self, id: u64) -> Result<BTreeMap<usize, Task>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("SELECT place, doc FROM plan_tasks WHERE plan = ?1")?;
        let rows = select.query_map([id as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        let mut tasks = BTreeMap::new();
        for row in rows {
            let (index, doc) = row?;
            if let Ok(task) = serde_json::from_str(&doc) {
                tasks.insert(usize::try_from(index).unwrap_or(usize::MAX), task);
            }
        }
        Ok(tasks)
    }

    /// Folds what became of plans since record `folded_seq`.
    pub(crate) fn write_plans(&self, plans: &Plans, folded_seq: u64) -> Result<(), StoreError> {
        let db = &self.db;
        let mut made = db.prepare_cached("INSERT OR REPLACE INTO plans VALUES (?1, ?2, ?3)")?;
        let mut changed = db.prepare_cached("UPDATE plans SET updated_at = ?2 WHERE id = ?1")?;
        let mut gone = db.prepare_cached("DELETE FROM plans WHERE id = ?1")?;
        let mut no_tasks = db.prepare_cached("DELETE FROM plan_tasks WHERE plan = ?1")?;
        let mut task =
            db.prepare_cached("INSERT OR REPLACE INTO plan_tasks VALUES (?1, ?2, ?3)")?;
        let newer = plans.entries.iter().filter(|(_, e)| e.seq > folded_seq);
        for (id, entry) in newer {
            let (id, at) = (*id as i64, entry.updated_at as i64);
            match &entry.since {
                Since::Made(head) => made.execute(params![id, at, json(head)])?,
                Since::Changed => changed.execute(params![id, at])?,
                Since::Gone => {
                    no_tasks.execute([id])?;
                    gone.execute([id])?
                }
            };
            for (index, doc) in &entry.tasks {
                task.execute(params![id, *index as i64, json(doc)])?;
            }
        }
        Ok(())
    }
}

fn json(doc: &impl Serialize) -> String {
    serde_json::to_string(doc).expect("plain values become JSON")
}
