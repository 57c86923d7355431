//! What is asked of a Chroma server, by version 2 of its HTTP interface.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callgate_call::Cancel;
use callgate_dial::{Address, Ask, Dialer, Peer};
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::engine::SearchError;

/// How long one question may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// What is read of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a server is, and what of it is ours.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its address, with what comes before `/api`.
    pub url: String,
    /// Whose databases.
    pub tenant: String,
    /// Which of them.
    pub database: String,
    /// The collection of the workspace's files; those of namespaces begin with it.
    pub collection: String,
    /// What the server is to know us by.
    pub token: Option<String>,
}

/// A collection as the server tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Collection {
    id: String,
    /// Numbers of its vectors, once it has any.
    pub dimensions: Option<usize>,
    /// The model that makes its vectors; none where programs bring them.
    pub model: Option<String>,
    /// What the last who changed it marked it with.
    pub mark: Option<String>,
}

pub struct Client {
    peer: Peer,
    collections: String,
    token: Option<HeaderValue>,
    /// For callers that are in no runtime.
    own: OnceLock<Runtime>,
}

impl Client {
    pub fn new(dialer: Arc<Dialer>, place: &Place) -> Result<Self, String> {
        let address = Address::parse(&place.url)?;
        let token = match &place.token {
            None => None,
            Some(_) if !address.is_private() => {
                return Err(format!(
                    "{address}: a token goes over https, or to this machine"
                ));
            }
            Some(token) => {
                let value = HeaderValue::from_str(token).map_err(|_| "the token is none")?;
                Some(value)
            }
        };
        for (name, part) in [
            ("tenant", &place.tenant),
            ("database", &place.database),
            ("collection", &place.collection),
        ] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if part.len() < 3 || part.len() > 256 || !part.chars().all(is_plain) {
                return Err(format!(
                    "{name}: 3 to 256 letters, digits, `.`, `_` and `-`"
                ));
            }
        }
        let base = address.path().trim_end_matches('/');
        let (tenant, database) = (&place.tenant, &place.database);
        let collections =
            format!("{base}/api/v2/tenants/{tenant}/databases/{database}/collections");
        Ok(Self {
            peer: Peer::new(dialer, address),
            collections,
            token,
            own: OnceLock::new(),
        })
    }

    pub fn url(&self) -> String {
        self.peer.address().to_string()
    }

    /// The same, for as long as somebody waits for an answer.
    pub fn until<'a>(&'a self, stop: &'a Cancel) -> Talk<'a> {
        Talk { client: self, stop }
    }
}

/// Questions to a server, until their asker wants to know no more.
#[derive(Clone, Copy)]
pub struct Talk<'a> {
    client: &'a Client,
    stop: &'a Cancel,
}

impl Talk<'_> {
    /// A collection, if it is there.
    pub fn find(&self, name: &str) -> Result<Option<Collection>, SearchError> {
        let path = format!("{}/{name}", self.client.collections);
        let told = self.answer(Ask::get(&path))?;
        told.map(|told| self.collection(&told)).transpose()
    }

    /// A collection, made if it is not there.
    pub fn make(&self, name: &str, model: Option<&str>) -> Result<Collection, SearchError> {
        let told = self.post(
            &self.client.collections,
            &json!({
                "name": name,
                "get_or_create": true,
                "metadata": metadata(model, None),
                "configuration": { "hnsw": { "space": "cosine" } },
            }),
        )?;
        // A server may take what is said for an update of one that is there.
        self.find(name)?.map_or_else(|| self.collection(&told), Ok)
    }

    /// Says what a collection is to say of itself.
    pub fn describe(
        &self,
        of: &Collection,
        model: Option<&str>,
        mark: Option<&str>,
    ) -> Result<(), SearchError> {
        let path = format!("{}/{}", self.client.collections, of.id);
        let body = json!({ "new_metadata": metadata(model, mark) });
        let answer = self.answer(Ask::put(&path, body.to_string().into_bytes()))?;
        answer.map(drop).ok_or_else(|| self.gone())
    }

    pub fn drop(&self, name: &str) -> Result<(), SearchError> {
        let path = format!("{}/{name}", self.client.collections);
        self.answer(Ask::delete(&path)).map(drop)
    }

    /// How many items a collection has.
    pub fn count(&self, of: &Collection) -> Result<u64, SearchError> {
        let told = self.answer(Ask::get(&self.path(of, "count")))?;
        told.and_then(|told| told.as_u64())
            .ok_or_else(|| self.odd("count"))
    }

    /// Asks a collection something.
    pub fn ask(&self, of: &Collection, what: &str, body: &Value) -> Result<Value, SearchError> {
        self.post(&self.path(of, what), body)
    }

    /// What is said of an answer that is none.
    pub fn odd(&self, what: &str) -> SearchError {
        self.failed(format!("answers `{what}` with something else"))
    }

    fn path(&self, of: &Collection, what: &str) -> String {
        format!("{}/{}/{what}", self.client.collections, of.id)
    }

    fn collection(&self, told: &Value) -> Result<Collection, SearchError> {
        let id = told["id"].as_str().ok_or_else(|| self.odd("collection"))?;
        let dimensions = told["dimension"].as_u64();
        let said = |key: &str| {
            let word = told["metadata"][key].as_str();
            word.filter(|word| !word.is_empty()).map(str::to_owned)
        };
        // It becomes part of a path.
        if !id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(self.odd("collection"));
        }
        Ok(Collection {
            id: id.to_owned(),
            dimensions: dimensions.and_then(|count| usize::try_from(count).ok()),
            model: said(MODEL_KEY),
            mark: said(MARK_KEY),
        })
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, SearchError> {
        let answer = self.answer(Ask::post(path, body.to_string().into_bytes()))?;
        answer.ok_or_else(|| self.gone())
    }

    /// What the server says; `None` for what is not there.
    fn answer(&self, mut ask: Ask) -> Result<Option<Value>, SearchError> {
        if let Some(token) = &self.client.token {
            ask.header(HeaderName::from_static("x-chroma-token"), token.clone());
        }
        let asked = async {
            let asked = self.client.peer.ask(ask, ANSWER_BYTES_MAX);
            // A dropped request closes its connection, and the server may have carried it out.
            // Asking again is safe: pieces are put and removed by their ids.
            tokio::select! {
                () = self.stop.cancelled() => None,
                asked = tokio::time::timeout(ANSWER_MAX, asked) => Some(asked),
            }
        };
        let reply = match self.waited(asked)?.ok_or(SearchError::Stopped)? {
            Err(_) => {
                let seconds = ANSWER_MAX.as_secs();
                return Err(self.failed(format!("did not answer in {seconds} s")));
            }
            Ok(Err(trouble)) => return Err(self.failed(format!("can not be used: {trouble}"))),
            Ok(Ok(reply)) => reply,
        };
        match (reply.status, reply.body) {
            (404, _) => Ok(None),
            (_, Some(body)) if body.is_empty() => Ok(Some(Value::Null)),
            (_, Some(body)) => {
                let told = serde_json::from_slice(&body);
                told.map(Some)
                    .map_err(|_| self.failed("answers what is no JSON".to_owned()))
            }
            (status, None) => Err(self.failed(format!("answered {status}"))),
        }
    }

    /// Callers are on threads that may wait, of a runtime or of none.
    fn waited<T>(&self, what: impl Future<Output = T>) -> Result<T, SearchError> {
        if let Ok(handle) = Handle::try_current() {
            return Ok(handle.block_on(what));
        }
        if self.client.own.get().is_none() {
            let made = Builder::new_current_thread().enable_all().build();
            let made = made.map_err(|error| self.failed(format!("can not be asked: {error}")))?;
            let _ = self.client.own.set(made);
        }
        match self.client.own.get() {
            Some(own) => Ok(own.block_on(what)),
            None => Err(self.failed("can not be asked".to_owned())),
        }
    }

    fn gone(&self) -> SearchError {
        self.failed("answered 404".to_owned())
    }

    fn failed(&self, reason: String) -> SearchError {
        let url = self.client.url();
        SearchError::Server { url, reason }
    }
}

/// What a collection says of itself; a word that is not there is empty.
fn metadata(model: Option<&str>, mark: Option<&str>) -> Value {
    json!({ MODEL_KEY: model.unwrap_or_default(), MARK_KEY: mark.unwrap_or_default() })
}

/// Where a collection says which model makes its vectors.
const MODEL_KEY: &str = "callgate_model";
/// Where it says who changed it last.
const MARK_KEY: &str = "callgate_mark";
