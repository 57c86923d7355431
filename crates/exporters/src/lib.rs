//! Sends what happened to other programs: spans of calls to a collector of OpenTelemetry, ends of
//! runs to a webhook. No outcome depends on either: what a receiver does not take is counted or
//! logged.

pub mod otlp;
pub mod webhook;
