//! Turns a tool's needs into a kernel plan. Until that is built it promises nothing, and
//! says so in every plan.

use callgate_call::{Call, Fault, Held, Plan, Planner, Tool};

/// Plans `none` for every tool: children get closed descriptors, a scrubbed environment,
/// limits and an owned tree, but nothing holds them to a guarantee.
#[derive(Clone, Copy, Debug, Default)]
pub struct Confinement;

impl Planner for Confinement {
    fn plan(&self, _: &Call, _: &Tool) -> Result<Plan, Fault> {
        Ok(Plan::default())
    }

    fn outlook(&self, _: &Tool) -> Vec<Held> {
        Vec::new()
    }
}
