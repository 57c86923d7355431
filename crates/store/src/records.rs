//! The records of the chain, kind by kind: what each says in its body (for all to read, for
//! ever) and what it changes. Keys are sorted; `at`, `kind` and `seq` are in every one.

use callgate_call::{Digest, Timestamp};

use crate::approvals::ApprovalDoc;
use crate::body::key;
use crate::leases::LeaseDoc;
use crate::pending::Pending;
use crate::pilots::{PilotDoc, PilotFacts};
use crate::plans::{GoneDoc, PlanDoc, TaskDoc};
use crate::run::{ArtifactDoc, EndDoc, LostDoc, StartDoc};
use crate::side::{self, Change, Claim, Ended, TrustDoc};
use crate::tokens::TokenDoc;
use crate::{ApprovalId, End, Finish, LeaseId, Refusal, Replay, Start, Ticket};

/// A call starts.
pub(crate) fn start(
    pending: &mut Pending,
    now: Timestamp,
    start: &Start<'_>,
    claim: Option<Claim>,
    lease: Option<&LeaseId>,
    approval: Option<&ApprovalId>,
) -> Ticket {
    let change = claim.map_or(Change::Nothing, Change::Claim);
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("aid"), start.aid)
            .maybe(key!("approval"), approval.map(|id| id.0.as_str()))
            .number(key!("at"), now.0)
            .call(key!("call"), start.call)
            .text(key!("caller"), start.caller.as_str())
            .text(key!("enforcement"), start.enforcement)
            .digest(key!("input"), &start.input)
            .key_id(start.key)
            .kind("start")
            .maybe(key!("lease"), lease.map(|id| id.0.as_str()))
            .seq()
            .number(key!("tier"), u64::from(start.tier.number()))
            .text(key!("tool"), start.tool)
            .maybe(key!("trace"), start.trace_id)
            .only_yes(key!("unsafe_override"), start.unsafe_override)
            .text(key!("wire"), start.wire);
    };
    pending.push(body, &change, 0, false)
}

/// A call ended.
pub(crate) fn outcome(
    pending: &mut Pending,
    now: Timestamp,
    finish: &Finish<'_>,
    ended: Ended<'_>,
) -> Ticket {
    let ordinal_at = ordinal_at(&ended);
    let took_ms = now.0.saturating_sub(finish.began.0);
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .call(key!("call"), finish.call)
            .text(key!("enforcement"), finish.enforcement);
        if let End::Fault { kind, .. } = finish.end {
            body.text(key!("fault"), kind);
        }
        body.key_id(finish.key)
            .kind("outcome")
            .some(key!("network_refused"), finish.network_refused)
            .yes(key!("ok"), finish.end.is_output());
        if let End::Output { digest, .. } = finish.end {
            body.digest(key!("output"), &digest);
        }
        body.seq()
            .number(key!("took_ms"), took_ms)
            .text(key!("tool"), finish.tool)
            .maybe(key!("trace"), finish.trace_id)
            .only_yes(key!("unsafe_override"), finish.unsafe_override);
    };
    pending.push(body, &Change::End(ended), ordinal_at, false)
}

/// A call of a pure tool, which starts and ends in one record: nothing happened in between that
/// its start would have to precede. It says what `start` and `outcome` say.
pub(crate) fn call(
    pending: &mut Pending,
    now: Timestamp,
    start: &Start<'_>,
    finish: &Finish<'_>,
    ended: Ended<'_>,
) -> Ticket {
    let ordinal_at = ordinal_at(&ended);
    let took_ms = now.0.saturating_sub(finish.began.0);
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("aid"), start.aid)
            .number(key!("at"), now.0)
            .call(key!("call"), start.call)
            .text(key!("caller"), start.caller.as_str())
            .text(key!("enforcement"), finish.enforcement);
        if let End::Fault { kind, .. } = finish.end {
            body.text(key!("fault"), kind);
        }
        body.digest(key!("input"), &start.input)
            .key_id(finish.key)
            .kind("call")
            .yes(key!("ok"), finish.end.is_output());
        if let End::Output { digest, .. } = finish.end {
            body.digest(key!("output"), &digest);
        }
        body.seq()
            .number(key!("tier"), u64::from(start.tier.number()))
            .number(key!("took_ms"), took_ms)
            .text(key!("tool"), start.tool)
            .maybe(key!("trace"), start.trace_id)
            .only_yes(key!("unsafe_override"), start.unsafe_override)
            .text(key!("wire"), start.wire);
    };
    pending.push(body, &Change::End(ended), ordinal_at, false)
}

/// Where in the side bytes the ordinal belongs; 0 for none.
fn ordinal_at(ended: &Ended<'_>) -> usize {
    match ended.key {
        Some(_) => side::ordinal_at(ended.tool),
        None => 0,
    }
}

/// A call was refused before it ran.
pub(crate) fn refusal(pending: &mut Pending, now: Timestamp, refusal: &Refusal<'_>) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .call(key!("call"), refusal.call)
            .text(key!("caller"), refusal.caller.as_str())
            .text(key!("fault"), refusal.fault);
        if let Some(input) = &refusal.input {
            body.digest(key!("input"), input);
        }
        body.kind_and_seq("refusal")
            .text(key!("tool"), refusal.tool)
            .maybe(key!("trace"), refusal.trace_id)
            .text(key!("wire"), refusal.wire);
    };
    pending.push(body, &Change::Nothing, 0, false)
}

/// A call was answered by the record of an earlier one.
pub(crate) fn replay(pending: &mut Pending, now: Timestamp, replay: &Replay<'_>) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .call(key!("call"), replay.call)
            .text(key!("caller"), replay.caller.as_str())
            .call(key!("earlier"), replay.earlier)
            .digest(key!("input"), &replay.input)
            .key_id(Some(replay.key))
            .kind_and_seq("replay")
            .text(key!("tool"), replay.tool)
            .maybe(key!("trace"), replay.trace_id)
            .text(key!("wire"), replay.wire);
    };
    pending.push(body, &Change::Nothing, 0, false)
}

/// A started call's process is dead.
pub(crate) fn unknown(pending: &mut Pending, claim: Claim) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), claim.at)
            .call(key!("call"), claim.call)
            .key_id(Some(claim.key))
            .kind("unknown")
            .text(key!("owner"), &claim.owner.to_string())
            .seq();
    };
    pending.push(body, &Change::Unknown(claim), 0, false)
}

/// A lease was granted.
pub(crate) fn lease_grant(pending: &mut Pending, now: Timestamp, doc: LeaseDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .maybe(key!("caller"), doc.caller.as_deref())
            .number(key!("expires_at"), doc.expires_at)
            .maybe(key!("input"), doc.input.as_deref())
            .kind("lease.grant")
            .text(key!("lease"), &doc.id)
            .seq()
            .number(key!("tier"), u64::from(doc.tier))
            .text(key!("tool"), &doc.tool);
    };
    pending.push(body, &Change::Lease(doc.clone()), 0, false)
}

/// What a call did to the lease or the approval it brought.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    /// It was spent; the call's start follows in the same transaction.
    Spent,
    /// It can be spent again: the call, whose end follows in the same transaction, ran nothing.
    Returned,
}

/// A lease was spent, or given back.
pub(crate) fn lease_use(
    pending: &mut Pending,
    now: Timestamp,
    used: Use,
    start: &Start<'_>,
    doc: LeaseDoc,
) -> Ticket {
    let kind = match used {
        Use::Spent => "lease.spend",
        Use::Returned => "lease.return",
    };
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .call(key!("call"), start.call)
            .kind(kind)
            .text(key!("lease"), &doc.id)
            .seq()
            .text(key!("tool"), start.tool);
    };
    pending.push(body, &Change::Lease(doc.clone()), 0, true)
}

/// A lease was taken back.
pub(crate) fn lease_revoke(pending: &mut Pending, now: Timestamp, doc: LeaseDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("lease.revoke")
            .text(key!("lease"), &doc.id)
            .seq();
    };
    pending.push(body, &Change::Lease(doc.clone()), 0, false)
}

/// A person is asked.
pub(crate) fn approval_ask(pending: &mut Pending, now: Timestamp, doc: ApprovalDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("approval"), &doc.id)
            .number(key!("at"), now.0)
            .text(key!("caller"), &doc.caller)
            .maybe(key!("displayed"), doc.displayed.as_deref())
            .text(key!("input"), &doc.input)
            .kind_and_seq("approval.ask")
            .number(key!("tier"), u64::from(doc.tier))
            .text(key!("tool"), &doc.tool);
    };
    pending.push(body, &Change::Approval(doc.clone()), 0, false)
}

/// A person said yes or no.
pub(crate) fn approval_decide(
    pending: &mut Pending,
    now: Timestamp,
    granted: bool,
    by: &str,
    doc: ApprovalDoc,
) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("approval"), &doc.id)
            .number(key!("at"), now.0)
            .text(key!("by"), by)
            .maybe(key!("displayed"), doc.displayed.as_deref())
            .text(key!("input"), &doc.input)
            .kind_and_seq(if granted {
                "approval.grant"
            } else {
                "approval.deny"
            });
    };
    pending.push(body, &Change::Approval(doc.clone()), 0, false)
}

/// An approval was used, or given back.
pub(crate) fn approval_use(
    pending: &mut Pending,
    now: Timestamp,
    used: Use,
    start: &Start<'_>,
    doc: ApprovalDoc,
) -> Ticket {
    let kind = match used {
        Use::Spent => "approval.spend",
        Use::Returned => "approval.return",
    };
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("approval"), &doc.id)
            .number(key!("at"), now.0)
            .call(key!("call"), start.call)
            .kind_and_seq(kind)
            .text(key!("tool"), start.tool);
    };
    pending.push(body, &Change::Approval(doc.clone()), 0, true)
}

/// A path is trusted, or no longer.
pub(crate) fn trust(
    pending: &mut Pending,
    now: Timestamp,
    path: &str,
    digest: Option<Digest>,
) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0);
        if let Some(digest) = &digest {
            body.digest(key!("digest"), digest);
        }
        body.kind(if digest.is_some() { "trust" } else { "untrust" })
            .text(key!("path"), path)
            .seq();
    };
    let doc = TrustDoc {
        path: path.to_owned(),
        digest: digest.map(Digest::to_hex),
    };
    pending.push(body, &Change::Trust(doc), 0, false)
}

/// A bearer token was made.
pub(crate) fn token_create(pending: &mut Pending, now: Timestamp, doc: TokenDoc) -> Ticket {
    let rate = doc.rate.map(|(rate, burst)| format!("{rate}/s,{burst}"));
    let tools = (!doc.tools.is_empty()).then(|| doc.tools.join(" "));
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0);
        if let Some(at) = doc.expires_at {
            body.number(key!("expires_at"), at);
        }
        body.kind("token.create")
            .maybe(key!("rate"), rate.as_deref())
            .seq()
            .number(key!("tier_max"), u64::from(doc.tier_max))
            .text(key!("token"), &doc.name)
            .maybe(key!("tools"), tools.as_deref());
    };
    pending.push(body, &Change::Token(doc.clone()), 0, false)
}

/// A bearer token was taken back.
pub(crate) fn token_revoke(pending: &mut Pending, now: Timestamp, doc: TokenDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind_and_seq("token.revoke")
            .text(key!("token"), &doc.name);
    };
    pending.push(body, &Change::Token(doc.clone()), 0, false)
}

/// Strangers were turned away.
pub(crate) fn http_refuse(
    pending: &mut Pending,
    now: Timestamp,
    reason: &str,
    times: u64,
) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("http.refuse")
            .text(key!("reason"), reason)
            .seq()
            .number(key!("times"), times);
    };
    pending.push(body, &Change::Nothing, 0, false)
}

/// A note was appended.
pub(crate) fn memory_append(
    pending: &mut Pending,
    now: Timestamp,
    text: &str,
    meta: Option<&str>,
) -> Ticket {
    let digest = Digest::of_bytes(text.as_bytes());
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .number(key!("bytes"), text.len() as u64)
            .digest(key!("digest"), &digest)
            .kind_and_seq("memory.append");
    };
    pending.push(
        body,
        &Change::Note {
            at: now.0,
            meta,
            text,
        },
        0,
        false,
    )
}

/// A plan was made.
pub(crate) fn plan_create(pending: &mut Pending, now: Timestamp, doc: &PlanDoc) -> Ticket {
    let id = format!("p{}", doc.id);
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("plan.create")
            .text(key!("plan"), &id)
            .seq()
            .number(key!("tasks"), doc.tasks.len() as u64);
    };
    pending.push(body, &Change::Plan(doc.clone()), 0, false)
}

/// A task of a plan was changed.
pub(crate) fn plan_task(pending: &mut Pending, now: Timestamp, doc: &TaskDoc) -> Ticket {
    let (plan, task) = (format!("p{}", doc.plan), format!("t{}", doc.index + 1));
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("plan.task")
            .text(key!("plan"), &plan)
            .seq()
            .text(key!("status"), doc.task.status.as_str())
            .text(key!("task"), &task);
    };
    pending.push(body, &Change::PlanTask(doc.clone()), 0, false)
}

/// A plan was removed.
pub(crate) fn plan_delete(pending: &mut Pending, now: Timestamp, doc: &GoneDoc) -> Ticket {
    let plan = format!("p{}", doc.plan);
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("plan.delete")
            .text(key!("plan"), &plan)
            .seq();
    };
    pending.push(body, &Change::PlanGone(doc.clone()), 0, false)
}

/// A streamed run begins.
pub(crate) fn run_start(pending: &mut Pending, now: Timestamp, doc: StartDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .number(key!("attempt"), u64::from(doc.attempt))
            .text(key!("call"), &doc.call)
            .text(key!("category"), &doc.category)
            .text(key!("dataset"), &doc.dataset)
            .text(key!("day"), &doc.day)
            .maybe(key!("job"), doc.job.as_deref())
            .kind("run.start")
            .maybe(key!("parent"), doc.parent.as_deref())
            .text(key!("policy"), &doc.policy)
            .text(key!("run"), &doc.run)
            .seq()
            .text(key!("source"), &doc.source);
    };
    pending.push(body, &Change::RunStart(doc.clone()), 0, false)
}

/// An artifact of a run exists from here on.
pub(crate) fn artifact_commit(
    pending: &mut Pending,
    now: Timestamp,
    call: &str,
    doc: ArtifactDoc,
) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.text(key!("artifact"), &doc.artifact)
            .number(key!("at"), now.0)
            .number(key!("bytes"), doc.bytes)
            .text(key!("call"), call)
            .text(key!("content_type"), &doc.content_type)
            .text(key!("digest"), &doc.digest)
            .kind("artifact.commit")
            .text(key!("name"), &doc.name)
            .text(key!("run"), &doc.run)
            .seq();
    };
    pending.push(body, &Change::Artifact(doc.clone()), 0, false)
}

/// A streamed run ended.
pub(crate) fn run_end(pending: &mut Pending, now: Timestamp, call: &str, doc: EndDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .text(key!("call"), call)
            .some(key!("dropped"), doc.dropped.values().sum())
            .number(key!("events_bytes"), doc.events_bytes)
            .text(key!("events_digest"), &doc.events)
            .kind("run.end")
            .number(key!("persisted"), doc.persisted)
            .number(key!("received"), doc.received)
            .text(key!("report_digest"), &doc.report)
            .text(key!("run"), &doc.run)
            .seq()
            .text(key!("verdict"), &doc.verdict);
    };
    pending.push(body, &Change::RunEnd(doc.clone()), 0, false)
}

/// A streamed run's process is dead, and no end of it was recorded.
pub(crate) fn run_lost(pending: &mut Pending, now: Timestamp, call: &str, doc: LostDoc) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .text(key!("call"), call)
            .kind("run.lost")
            .text(key!("run"), &doc.run)
            .seq();
    };
    pending.push(body, &Change::RunLost(doc.clone()), 0, false)
}

/// Something happened in a run of the pilot.
pub(crate) fn pilot(
    pending: &mut Pending,
    now: Timestamp,
    doc: &PilotDoc,
    facts: PilotFacts<'_>,
) -> Ticket {
    let kind = format!("pilot.{}", doc.event);
    let some = |text| Some(text).filter(|text: &&str| !text.is_empty());
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.maybe(key!("aid"), some(facts.aid))
            .number(key!("at"), now.0)
            .digest(key!("digest"), &doc.digest())
            .kind(&kind)
            .text(key!("run"), &doc.run)
            .seq()
            .maybe(key!("state"), some(facts.state))
            .maybe(key!("status"), some(facts.status))
            .number(key!("step"), u64::from(doc.step));
    };
    pending.push(body, &Change::Pilot(doc.clone()), 0, false)
}

/// Records were given up because they could not be written.
pub(crate) fn lost(pending: &mut Pending, now: Timestamp, count: u64) -> Ticket {
    let body = |body: &mut crate::body::BodyWriter<'_>| {
        body.number(key!("at"), now.0)
            .kind("lost")
            .number(key!("records"), count)
            .seq();
    };
    pending.push(body, &Change::Nothing, 0, false)
}
