//! The doors of `serve`: on the gate's socket, on the bridge's and on TCP. They open together,
//! close together, and share what is under way.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Cancel, Clock, Wire};
use callgate_doors::http::{self as gate_http, Closing, SameUid};
use callgate_doors::mcp::Server;
use callgate_doors::mcp::http::{self as mcp_http, HttpDoor};
use callgate_doors::metrics;
use callgate_doors::port::Port;
use callgate_doors::rpc::{self, Rpc};
use callgate_doors::service::{self, ServiceDoor};
use callgate_exporters::otlp::Exporter;
use callgate_gate::Gate;
use callgate_listener::access::Everybody;
use callgate_listener::web::{Entrance, Names};
use callgate_registry::setup::Parts;
use callgate_store::StoreError;
use tokio_util::task::TaskTracker;

use super::super::StopSignals;
use super::bridge::Bridge;
use super::{http, say_wait};
use crate::mcp;

/// What the doors share.
pub struct Doors {
    gate: Arc<Gate>,
    server: Arc<Server>,
    methods: Arc<Rpc>,
    caller: Caller,
    calls: TaskTracker,
    closing: Closing,
    /// Where the tool protocol is by another name.
    service_path: Option<String>,
}

impl Doors {
    /// The doors in front of a gate, closed. A call that takes longer than `task_after` becomes
    /// a task.
    pub fn new(
        parts: &Parts,
        gate: &Arc<Gate>,
        caller: &Caller,
        task_after: Duration,
    ) -> Result<Self, StoreError> {
        let (closing, calls) = (Closing::default(), TaskTracker::new());
        Ok(Self {
            gate: Arc::clone(gate),
            server: mcp::server(parts, Arc::clone(gate), task_after),
            methods: Rpc::new(Arc::clone(gate), calls.clone(), closing.clone()),
            caller: caller.clone(),
            calls,
            closing,
            service_path: http::configured(parts)?.service.path,
        })
    }

    /// Serves on all of them until the stop, and then until nothing is under way.
    pub async fn until_closed(
        &self,
        listener: SameUid,
        bridge: Bridge,
        (tcp, clock): (Option<http::Tcp>, Arc<dyn Clock>),
        exporter: Option<Exporter>,
    ) -> io::Result<()> {
        let closed = Cancel::new();
        let export = async {
            if let Some(exporter) = exporter {
                exporter.run(closed.cancelled()).await;
            }
        };
        let on_tcp = async {
            if let Some(tcp) = tcp {
                self.serve_tcp(tcp, clock).await;
            }
        };
        let on_socket = async {
            let served = self.serve_local(listener).await;
            self.closing.stop.cancel();
            served
        };
        let doors = async {
            let bridge = bridge.serve(&self.closing);
            let (served, (), ()) = tokio::join!(on_socket, bridge, on_tcp);
            self.server.stop().await;
            self.methods.unheard().await;
            self.gate.flush_strangers();
            closed.cancel();
            served
        };
        tokio::join!(doors, export).0
    }

    /// Takes no more calls. Those that run go on.
    pub fn begin_stop(&self) {
        self.closing.stop.cancel();
        self.server.begin_stop();
        say_wait(self.calls.len() + self.server.running());
    }

    /// Stops at the first signal, and ends what runs at the second.
    pub async fn stop_at(&self, signals: &mut StopSignals) -> Infallible {
        signals.next().await;
        self.begin_stop();
        let end = || {
            self.closing.end.cancel();
            self.server.cancel_all();
        };
        signals.then(end).await
    }

    /// Stops once no client has been connected and no call has run for `idle_max`; never, without
    /// one.
    pub async fn stop_when_idle(&self, idle_max: Option<Duration>) -> Infallible {
        /// How often it is looked.
        const LOOK_EVERY: Duration = Duration::from_secs(5);
        let Some(idle_max) = idle_max else {
            return std::future::pending().await;
        };
        let mut idle = Duration::ZERO;
        while idle < idle_max {
            tokio::time::sleep(LOOK_EVERY.min(idle_max)).await;
            let is_idle = self.calls.is_empty() && self.server.is_idle();
            idle = if is_idle {
                idle + LOOK_EVERY
            } else {
                Duration::ZERO
            };
        }
        self.begin_stop();
        std::future::pending().await
    }

    async fn serve_tcp(&self, tcp: http::Tcp, clock: Arc<dyn Clock>) {
        let wires = [Wire::McpHttp, Wire::Service, Wire::RpcHttp];
        let mut port = self.port(tcp.entrance(), wires);
        port.router = port.router.fallback(mcp_http::unknown_path);
        let under_way = async {
            self.server.stop().await;
            self.calls.close();
            self.calls.wait().await;
        };
        let stop = self.closing.stop.clone();
        tcp.serve(port, clock, under_way, stop).await;
    }

    /// The gate's own socket answers what a port does, and what commands ask.
    async fn serve_local(&self, listener: SameUid) -> io::Result<()> {
        let everybody = Arc::new(Everybody(self.caller.clone()));
        let local = Entrance::new(everybody, Names::Any);
        let own = gate_http::router(
            Arc::clone(&self.gate),
            self.caller.clone(),
            self.calls.clone(),
            self.closing.end.clone(),
        );
        let shared = self.port(local, [Wire::Mcp, Wire::Tool, Wire::Rpc]);
        let router = own.merge(shared.router);
        gate_http::serve(listener, router, self.calls.clone(), &self.closing).await
    }

    fn port(&self, entrance: Entrance, [mcp_wire, service_wire, rpc_wire]: [Wire; 3]) -> Port {
        let mcp = HttpDoor::new(Arc::clone(&self.server), entrance.clone(), mcp_wire);
        let settings = service::Settings {
            path: self.service_path.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wire: service_wire,
        };
        let (gate, end) = (Arc::clone(&self.gate), self.closing.end.clone());
        let numbers = metrics::router(Arc::clone(&gate), entrance.clone(), self.caller.clone());
        let rpc = rpc::http::HttpDoor::new(Arc::clone(&self.methods), entrance.clone(), rpc_wire);
        let service = ServiceDoor::new(gate, entrance, settings, self.calls.clone(), end);
        let router = mcp_http::router(Arc::clone(&mcp))
            .merge(service::router(service))
            .merge(rpc::http::router(Arc::clone(&rpc)))
            .merge(numbers);
        Port { mcp, rpc, router }
    }
}
