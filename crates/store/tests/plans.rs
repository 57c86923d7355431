//! Plans: the same in every process and wherever they are kept, before and after folds and
//! without the index; told once each, in the order of the journal. R-12.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::*;
use callgate_store::{
    NewPlan, Options, PLAN_BYTES_MAX, PLANS_MAX, Plan, PlanId, PlanNews, Store, StoreError,
    TASKS_MAX, Task, TaskPatch, TaskStatus, Tuning,
};

fn options() -> Options {
    Options {
        tuning: Tuning {
            segment_bytes: 6000,
            fold_bytes: 9000,
            close_bytes: 0,
            run_keys: 16,
        },
        ..Options::default()
    }
}

fn task(description: &str, parent: Option<usize>) -> Task {
    Task {
        description: description.to_owned(),
        status: TaskStatus::Todo,
        assignee_role: "developer".to_owned(),
        parent,
    }
}

fn new(title: &str, tasks: usize) -> NewPlan {
    let child = |index: usize| task("x", (index > 0).then_some(0));
    NewPlan {
        title: title.to_owned(),
        description: (tasks % 2 == 1).then(|| "why".to_owned()),
        tasks: (0..tasks).map(child).collect(),
    }
}

fn all(store: &Store) -> BTreeMap<u64, Plan> {
    let (heads, more) = store.plans(None, usize::MAX).unwrap();
    assert!(!more);
    let ids = heads.iter().map(|head| head.id);
    let plans: BTreeMap<_, _> = ids
        .map(|id| (id.0, store.plan(id).unwrap().unwrap()))
        .collect();
    let whole: Vec<_> = plans.values().map(|plan| plan.head.clone()).collect();
    assert_eq!(heads, whole, "a list says what a look says");
    plans
}

/// A seeded story told to several stores against a plain model.
#[test]
fn folding_changes_nothing() {
    let folder = Folder::new("plans-fold");
    let clock = clock();
    let stores: Vec<Store> = (0..3)
        .map(|_| open_with(&folder, options(), &clock))
        .collect();
    let mut model: BTreeMap<u64, Plan> = BTreeMap::new();
    let mut seed = 20_250_827_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for step in 0..600 {
        clock.advance(std::time::Duration::from_millis(1));
        let store = &stores[random(3)];
        let some = model.keys().nth(random(model.len().max(1))).copied();
        match (random(10), some) {
            (0 | 1, _) => {
                let plan = store.create_plan(new("a plan", 1 + random(5))).unwrap();
                assert!(model.keys().all(|id| *id < plan.head.id.0));
                model.insert(plan.head.id.0, plan);
            }
            (2, Some(id)) if model.len() > 4 => {
                assert!(store.delete_plan(PlanId(id)).unwrap());
                assert!(!store.delete_plan(PlanId(id)).unwrap());
                model.remove(&id);
            }
            (_, Some(id)) => {
                let place = 1 + random(model[&id].tasks.len());
                let patch = TaskPatch {
                    description: (random(2) == 0).then(|| format!("step {step}")),
                    status: Some(TaskStatus::ALL[random(4)]),
                    assignee_role: None,
                };
                let plan = store.update_task(PlanId(id), place, &patch).unwrap();
                let task = &plan.tasks[place - 1];
                assert_eq!(Some(task.status), patch.status);
                assert!(
                    patch
                        .description
                        .is_none_or(|text| text == task.description)
                );
                assert!(plan.head.updated_at >= model[&id].head.updated_at);
                model.insert(id, plan);
            }
            _ => {}
        }
        if step % 50 == 0 {
            for store in &stores {
                assert_eq!(all(store), model, "step {step}");
            }
        }
        if step == 300 {
            std::fs::remove_file(folder.0.join("state.db")).unwrap();
            assert_eq!(all(&open_with(&folder, options(), &clock)), model);
        }
    }
    for store in &stores {
        assert_eq!(all(store), model);
        store.close().unwrap();
    }
    assert!(stores.iter().any(|store| store.stats().folds > 0));
    drop(stores);
    assert_eq!(all(&open_with(&folder, options(), &clock)), model);
    for name in ["state.db", "state.mark"] {
        let _ = std::fs::remove_file(folder.0.join(name));
    }
    assert_eq!(all(&open_with(&folder, options(), &clock)), model);
    let verdict = open_with(&folder, options(), &clock).verify().unwrap();
    assert!(verdict.is_good(), "{verdict:?}");
}

/// What others wrote is heard too, each change once, whatever is folded in between.
#[test]
fn changes_are_told_in_order() {
    let folder = Folder::new("plans-told");
    let clock = clock();
    let (here, there) = (
        open_with(&folder, options(), &clock),
        open_with(&folder, options(), &clock),
    );
    let early = there.create_plan(new("early", 2)).unwrap().head.id;
    let heard: Arc<Mutex<Vec<PlanNews>>> = Arc::default();
    let ear = Arc::clone(&heard);
    here.follow_plans(Arc::new(move |news| ear.lock().unwrap().push(news)))
        .unwrap();
    let done = TaskPatch {
        status: Some(TaskStatus::Done),
        ..TaskPatch::default()
    };
    let mut wanted = Vec::new();
    for round in 0..100 {
        let store = if round % 2 == 0 { &here } else { &there };
        let plan = store.update_task(early, 1 + round % 2, &done).unwrap();
        wanted.push((early, Some(1 + round % 2), plan.head.updated_at));
        clock.advance(std::time::Duration::from_millis(7));
        if round % 10 == 0 {
            let made = there.create_plan(new("more", 3)).unwrap().head;
            wanted.push((made.id, None, made.updated_at));
            there.delete_plan(made.id).unwrap();
            wanted.push((made.id, Some(0), made.updated_at));
        }
    }
    here.look().unwrap();
    let told: Vec<_> = heard.lock().unwrap().clone();
    let told: Vec<_> = told
        .into_iter()
        .map(|news| match news {
            PlanNews::Made(head) => (head.id, None, head.updated_at),
            PlanNews::Gone { plan, at } => (plan, Some(0), at),
            PlanNews::Task {
                plan,
                place,
                task,
                children,
                at,
            } => {
                assert_eq!(task.status, TaskStatus::Done);
                assert_eq!(children, if place == 1 { vec![2] } else { vec![] });
                (plan, Some(place), at)
            }
        })
        .collect();
    assert_eq!(told, wanted);
    assert!(here.stats().folds + there.stats().folds > 0);
}

/// A patch of nothing changes nothing; what is not there is not found.
#[test]
fn patches() {
    let folder = Folder::new("plans-patches");
    let store = open(&folder);
    let plan = store.create_plan(new("one", 2)).unwrap();
    let records = store.stats().records;
    let same = store.update_task(plan.head.id, 2, &TaskPatch::default());
    assert_eq!(same.unwrap(), plan);
    assert_eq!(store.stats().records, records);
    for (id, place) in [(plan.head.id, 0), (plan.head.id, 3), (PlanId(99), 1)] {
        let missing = store.update_task(id, place, &TaskPatch::default());
        assert!(matches!(missing, Err(StoreError::NotFound { .. })));
    }
    for text in ["", "p", "1", "p01", "p+1", "p-1", "P1", "p1 "] {
        assert_eq!(PlanId::parse(text), None, "{text}");
    }
    assert_eq!(PlanId::parse(&plan.head.id.to_string()), Some(plan.head.id));
}

/// At and past each bound.
#[test]
fn bounds() {
    let folder = Folder::new("plans-bounds");
    let store = open(&folder);
    let most = store.create_plan(new("most", TASKS_MAX)).unwrap();
    assert_eq!(most.tasks.len(), TASKS_MAX);
    let refused = store.create_plan(new("more", TASKS_MAX + 1));
    assert!(matches!(refused, Err(StoreError::Refused { .. })));
    let text = |bytes: usize| NewPlan {
        title: "\u{1}".repeat(bytes),
        description: None,
        tasks: Vec::new(),
    };
    let large = store.create_plan(text(PLAN_BYTES_MAX)).unwrap();
    assert_eq!(store.plan(large.head.id).unwrap(), Some(large));
    let refused = store.create_plan(text(PLAN_BYTES_MAX + 1));
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    let patch = TaskPatch {
        description: Some("x".repeat(PLAN_BYTES_MAX)),
        ..TaskPatch::default()
    };
    let refused = store.update_task(most.head.id, 1, &patch);
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    while store.plans(None, PLANS_MAX).unwrap().0.len() < PLANS_MAX {
        store.create_plan(new("another", 1)).unwrap();
    }
    let refused = store.create_plan(new("another", 1));
    assert!(matches!(refused, Err(StoreError::Refused { .. })));
    let (some, more) = store.plans(Some(most.head.id), 10).unwrap();
    assert_eq!((some.len(), more), (10, true));
    store.delete_plan(most.head.id).unwrap();
    store.create_plan(new("another", 1)).unwrap();
}
