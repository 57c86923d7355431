//! The way to some hosts, of a program that may reach those and no others. Who serves it is
//! handed in: the proxy is the runners'.

use std::future::Future;
use std::pin::Pin;

use callgate_call::{Fault, Needs, Sink};
use callgate_sandbox::Child;

/// A future of what is here.
pub type HostsFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Serves ways out.
pub trait Hosts: Send + Sync {
    /// That of a child, for as long as what it gives is kept; nothing where it has none.
    fn open<'a>(
        &'a self,
        child: &'a mut Child,
        needs: &'a Needs,
    ) -> HostsFuture<'a, Result<Option<Box<dyn OpenHosts>>, Fault>>;
}

/// A way that is open.
pub trait OpenHosts: Send + Sync {
    /// Reports what was refused to a child that is gone, and returns the first host that may be
    /// allowed by naming it.
    fn tell<'a>(&'a self, sink: &'a dyn Sink) -> HostsFuture<'a, Option<String>>;
}
