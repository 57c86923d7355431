//! What a client keeps for us and gives back: request state, session ids, cursors. Sealed, so
//! that what comes back is what was given, to whom it was given, and not too old.

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Clock, Timestamp};
use callgate_text::{decode_lower_hex, encode_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Seals and opens.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    clock: Arc<dyn Clock>,
}

/// Why something sealed was not accepted. Clients are told no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Seal {
    /// `key` must be secret, and the same as long as sealed things should be good.
    #[must_use]
    pub fn new(key: [u8; 32], clock: Arc<dyn Clock>) -> Self {
        Self { key, clock }
    }

    /// Seals `value` for `whom`; good for `life`.
    pub(crate) fn close<T: Serialize + ?Sized>(
        &self,
        whom: &str,
        value: &T,
        life: Duration,
    ) -> String {
        let until = self.clock.now().plus(life).0;
        let body = json!([until, value]).to_string();
        format!(
            "{}{}",
            encode_hex(&self.mac(whom, body.as_bytes())),
            encode_hex(body.as_bytes())
        )
    }

    /// Opens what was sealed for `whom`.
    pub(crate) fn open<T: DeserializeOwned>(&self, whom: &str, sealed: &str) -> Result<T, Broken> {
        let bytes = decode_lower_hex(sealed).ok_or(Broken)?;
        let (mac, body) = bytes.split_at_checked(MAC_BYTES).ok_or(Broken)?;
        // Compared as hashes, in constant time.
        if blake3::hash(mac) != blake3::hash(&self.mac(whom, body)) {
            return Err(Broken);
        }
        let (until, value): (u64, T) = serde_json::from_slice(body).map_err(|_| Broken)?;
        if self.clock.now() > Timestamp(until) {
            return Err(Broken);
        }
        Ok(value)
    }

    /// Bytes nobody can guess, made of a counter.
    pub(crate) fn nonce(&self, counter: u64) -> String {
        let now = self.clock.now().0.to_be_bytes();
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(b"nonce")
            .update(&now)
            .update(&counter.to_be_bytes());
        encode_hex(&hasher.finalize().as_bytes()[..MAC_BYTES])
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn mac(&self, whom: &str, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let length = u64::try_from(whom.len()).unwrap_or(u64::MAX);
        hasher
            .update(&length.to_be_bytes())
            .update(whom.as_bytes())
            .update(body);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_BYTES]);
        mac
    }
}

const MAC_BYTES: usize = 16;

#[cfg(feature = "fuzzing")]
impl Seal {
    /// Panics unless `body` under a good seal opens to what it says, and as it is opens to
    /// nothing. For the fuzz target `sealed`.
    pub(crate) fn check_opening(&self, whom: &str, body: &[u8]) {
        use serde_json::Value;

        let opened = self.open::<Value>(whom, &String::from_utf8_lossy(body));
        assert_eq!(opened, Err(Broken), "a seal can not be guessed");
        let sealed = encode_hex(&self.mac(whom, body)) + &encode_hex(body);
        if let Ok(value) = self.open::<Value>(whom, &sealed) {
            let said: Value = serde_json::from_slice(body).expect("what opens is JSON");
            assert_eq!(said[1], value);
            assert!(said[0].as_u64() >= Some(self.now().0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_call::ManualClock;
    use serde_json::Value;

    #[test]
    fn only_what_was_sealed_opens() {
        let clock = Arc::new(ManualClock::at(Timestamp(1000)));
        let seal = Seal::new([7; 32], Arc::clone(&clock) as Arc<dyn Clock>);
        let value = json!({"a": [1, null]});
        let sealed = seal.close("me", &value, Duration::from_secs(1));
        assert_eq!(seal.open::<Value>("me", &sealed), Ok(value));
        assert_eq!(seal.open::<Value>("you", &sealed), Err(Broken));
        for at in 0..sealed.len() {
            let mut other = sealed.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(seal.open::<Value>("me", &other), Err(Broken), "{at}");
            assert_eq!(seal.open::<Value>("me", &sealed[..at]), Err(Broken), "{at}");
        }
        let foreign = Seal::new([8; 32], Arc::clone(&clock) as Arc<dyn Clock>);
        assert_eq!(foreign.open::<Value>("me", &sealed), Err(Broken));
        clock.advance(Duration::from_millis(1000));
        assert!(seal.open::<Value>("me", &sealed).is_ok());
        clock.advance(Duration::from_millis(1));
        assert_eq!(seal.open::<Value>("me", &sealed), Err(Broken));
    }
}
