//! The HTTP listener: accepts connections, reads small requests by a path of its own and all
//! others with hyper, decides who is admitted, and bounds heads, bodies and time. It knows no
//! wire: the doors that answer on it implement [`tcp::Answers`].

pub mod access;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod tcp;
pub mod web;
