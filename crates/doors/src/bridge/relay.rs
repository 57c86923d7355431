//! The bridge's end: a pool of connections to the parent. Each carries one call at a time, so
//! that no answer can reach the wrong call; they are opened when a call needs one. B-2, B-3.
//! Arguments are checked before they are sent, and results before they are passed on. B-4, B-9.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use callgate_call::Cancel;
use callgate_gate::{Schema, content};
use callgate_wires::bridge::{
    Answer, IPC_ERROR, SIZE_ERROR, Said, ToolSchema, VALUE_ERROR, write_call,
};
use callgate_wires::mcp::{Extra, RawJson, ToolDefinition};
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::parent::said;
use super::stream::Frames;
use crate::mcp::{Relay, RelayCall, RelayFuture, input_schema};

/// Connections at the same time; a further call waits. B-2.
const CONNECTIONS_MAX: usize = 8;
/// B-8.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long apart a parent is tried whose queue of connections is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Passes calls on to the parent at one socket.
pub struct Pool {
    socket: PathBuf,
    uid: u32,
    tools: Vec<ToolDefinition>,
    checks: HashMap<String, InputCheck>,
    patience: Duration,
    places: Semaphore,
    idle: Mutex<Vec<Frames>>,
}

/// The input schema of one tool, compiled at the tool's first call.
struct InputCheck {
    schema: Value,
    compiled: OnceLock<Result<Schema, String>>,
}

impl InputCheck {
    fn new(tool: &ToolSchema) -> Self {
        Self {
            schema: tool.input_schema.clone(),
            compiled: OnceLock::new(),
        }
    }

    /// Returns `arguments` if they fit, else the error that a parent would answer. A tool whose
    /// schema does not compile cannot be called: nothing would hold its arguments to that schema.
    fn check(&self, tool: &str, arguments: Map<String, Value>) -> Result<Map<String, Value>, Said> {
        let arguments = Value::Object(arguments);
        let compile = || Schema::compile(&self.schema).map_err(|error| error.to_string());
        match self.compiled.get_or_init(compile) {
            Ok(schema) => schema
                .check_input(&arguments)
                .map_err(|fault| said(&fault))?,
            Err(reason) => {
                let words = format!(
                    "the arguments of `{tool}` cannot be checked, because its input_schema does \
                     not compile: {reason}"
                );
                return Err(Said::new(VALUE_ERROR, words));
            }
        }
        Ok(members(arguments))
    }
}

/// The members of a value that is an object.
fn members(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl Pool {
    /// A pool that has no connection yet. The parent must be a process of `uid`.
    #[must_use]
    pub fn new(socket: &Path, uid: u32, tools: &[ToolSchema]) -> Self {
        let shown = |tool: &ToolSchema| ToolDefinition {
            meta: None,
            annotations: None,
            description: Some(tool.description.clone()),
            execution: None,
            icons: Vec::new(),
            input_schema: RawJson::of(&input_schema(&tool.input_schema)),
            name: tool.name.clone(),
            output_schema: None,
            title: None,
            extra: Extra::new(),
        };
        Self {
            socket: socket.to_owned(),
            uid,
            tools: tools.iter().map(shown).collect(),
            checks: tools
                .iter()
                .map(|tool| (tool.name.clone(), InputCheck::new(tool)))
                .collect(),
            patience: CONNECT_PATIENCE,
            places: Semaphore::new(CONNECTIONS_MAX),
            idle: Mutex::default(),
        }
    }

    /// One call, from its place in the queue to its answer.
    async fn pass_on(&self, call: RelayCall) -> Result<Map<String, Value>, Said> {
        let arguments = match self.checks.get(&call.name) {
            Some(input) => input.check(&call.name, call.arguments)?,
            // A name that the file does not list is the parent's to refuse. BR-26.
            None => call.arguments,
        };
        let mut request = Vec::new();
        write_call(&call.name, &arguments, &call.meta, &mut request)
            .map_err(|error| Said::new(SIZE_ERROR, error.to_string()))?;
        let _place = self.places.acquire().await;
        let mut frames = self.sent(&request).await?;
        // The protocol can not take a call back: whoever drops this future closes the
        // connection with it, which the parent sees.
        let payload = match frames.next().await {
            Ok(Some(payload)) => payload,
            Ok(None) => return Err(lost("the parent closed the connection")),
            Err(error) => return Err(lost(&error.to_string())),
        };
        let answer = Answer::parse(&payload);
        if frames.is_fresh() {
            self.idle().push(frames);
        }
        match answer? {
            Answer::Result(result) => well_formed(result),
            Answer::Error(said) => Err(said),
        }
    }

    /// A connection on which `request` was sent. One that was kept may have died meanwhile;
    /// a parent never runs half a frame, so sending it again elsewhere is safe.
    async fn sent(&self, request: &[u8]) -> Result<Frames, Said> {
        while let Some(mut kept) = self.kept() {
            if kept.is_fresh() && kept.write(request).await.is_ok() {
                return Ok(kept);
            }
        }
        let mut frames = self.connect().await?;
        match frames.write(request).await {
            Ok(()) => Ok(frames),
            Err(error) => Err(lost(&error.to_string())),
        }
    }

    async fn connect(&self) -> Result<Frames, Said> {
        let failed = |reason: String| {
            let path = self.socket.display();
            let words = format!("Cannot connect to IPC server at {path}: {reason}");
            Said::new(IPC_ERROR, words)
        };
        let connecting = tokio::time::timeout(self.patience, self.knock());
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("no answer within {:?}", self.patience))),
        };
        // Another user's process may not have our input.
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == self.uid => {
                Frames::new(stream).map_err(|error| failed(error.to_string()))
            }
            Ok(peer) => Err(failed(format!("it is served by user {}", peer.uid()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// A full queue answers at once, where a TCP one would let us wait.
    async fn knock(&self) -> io::Result<UnixStream> {
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
                answered => return answered,
            }
        }
    }

    fn kept(&self) -> Option<Frames> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Frames>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks a result before it is passed on, because a client may fail on what it cannot read.
fn well_formed(result: Map<String, Value>) -> Result<Map<String, Value>, Said> {
    let result = Value::Object(result);
    if let Err(fault) = content::check_result(&result) {
        let words = format!("the parent's result is malformed: {fault}");
        return Err(Said::new(IPC_ERROR, words));
    }
    Ok(members(result))
}

fn lost(reason: &str) -> Said {
    let words = format!("Connection lost, and whether the tool ran is not known: {reason}");
    Said::new(IPC_ERROR, words)
}

impl Relay for Pool {
    fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    fn call(&self, call: RelayCall) -> RelayFuture<'_> {
        Box::pin(async move {
            let cancel: Cancel = call.cancel.clone();
            // Dropping `pass_on` gives up its place in the queue, or closes the connection that the
            // request was sent on. The parent notices that and ends a call without a key.
            let passed = tokio::select! {
                passed = self.pass_on(call) => passed,
                () = cancel.cancelled() => Err(Said::new("CancelledError", "cancelled")),
            };
            passed.unwrap_or_else(|said| failure(&said))
        })
    }
}

/// An error as a result. B-1.
fn failure(said: &Said) -> Map<String, Value> {
    let content = json!([{ "type": "text", "text": said.to_string() }]);
    Map::from_iter([
        ("content".to_owned(), content),
        ("isError".to_owned(), true.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    use std::io::Read as _;
    use std::os::unix::net::{UnixListener, UnixStream as StdStream};

    fn socket_path(name: &str) -> PathBuf {
        let name = format!("callgate-relay-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    /// B-7: a parent that is not of the user it should be is told nothing.
    #[test]
    fn another_user_s_parent() {
        let path = socket_path("other");
        let parent = UnixListener::bind(&path).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let reached = |uid: u32| {
            let pool = Pool::new(&path, uid, &[]);
            let sent = runtime().block_on(pool.sent(b"input"));
            let told = sent.map(drop).map_err(|said| said.message);
            let mut heard = Vec::new();
            let (mut stream, _) = parent.accept().unwrap();
            stream.read_to_end(&mut heard).unwrap();
            (told, heard)
        };
        assert_eq!(reached(uid), (Ok(()), b"input".to_vec()));
        let (told, heard) = reached(uid + 1);
        let words = format!("it is served by user {uid}");
        assert!(told.unwrap_err().ends_with(&words));
        assert_eq!(heard, b"");
        std::fs::remove_file(&path).unwrap();
    }

    /// B-8: a parent that does not take connections is given up, one that is only busy waited
    /// for.
    #[test]
    fn a_full_queue() {
        let path = socket_path("full");
        let queue = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&queue, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&queue, 0).unwrap();
        let first = StdStream::connect(&path).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let mut pool = Pool::new(&path, uid, &[]);
        pool.patience = Duration::from_millis(30);
        let runtime = runtime();
        let refused = runtime.block_on(pool.connect()).err().unwrap();
        assert!(
            refused.message.ends_with("no answer within 30ms"),
            "{refused}"
        );
        pool.patience = CONNECT_PATIENCE;
        let connected = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(pool.connect()).is_ok());
            drop(UnixListener::from(queue.try_clone().unwrap()).accept());
            waiting.join().unwrap()
        });
        assert!(connected);
        drop(first);
        std::fs::remove_file(&path).unwrap();
    }
}
