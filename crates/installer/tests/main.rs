//! Tests of the installer with npm, pip and the registries, in one binary.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests find programs by the environment and start what was installed"
)]

mod support;

mod confined;
mod npm;
mod pypi;
