//! Calls to a foreign service: a real one, in Python, that does as it is told.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::Bench;
use callgate_call::{
    Asker, Call, CallId, Caller, Cancel, Document, Fault, Guarantee, Guarantees, Level, Needs,
    Plan, Wire,
};
use callgate_dial::Dialer;
use callgate_runners::{BearerSecret, HandshakeWhen, NamedSecrets, ServiceRunner, ServiceSettings};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A running service. Ends with the test.
struct Service {
    child: Child,
    lines: mpsc::Receiver<Value>,
    port: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> PathBuf {
    std::env::var_os("CALLGATE_TEST_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

impl Service {
    fn start(arguments: &[&Path]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/service.py");
        let mut child = Command::new(python())
            .arg(script)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        lines.read_line(&mut port).unwrap();
        let (tell, told) = mpsc::channel(1024);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).expect("a line is JSON");
                let _ = tell.blocking_send(value);
            }
        });
        Self {
            child,
            lines: told,
            port: port.trim().parse().unwrap(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The next thing it tells.
    async fn told(&mut self) -> Value {
        let told = tokio::time::timeout(crate::support::LONG, self.lines.recv()).await;
        told.expect("it tells something").expect("it is there")
    }

    /// How it answers handshakes from now on.
    fn shakes(&self, status: u16, body: &Value) {
        let text = json!({ "status": status, "body": body.to_string() }).to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
        stream.read_to_string(&mut String::new()).unwrap();
    }
}

fn settings(url: String) -> ServiceSettings {
    ServiceSettings {
        url,
        entry: None,
        tool_name: None,
        handshake: HandshakeWhen::default(),
        token: None,
        workspace: "/path/to/app".into(),
        output_bytes_max: 1000,
        secrets: Arc::default(),
    }
}

fn runner(settings: ServiceSettings) -> Arc<ServiceRunner> {
    let dialer = Arc::new(Dialer::new(Vec::new));
    Arc::new(ServiceRunner::new(dialer, settings).unwrap())
}

fn bench(url: String) -> Bench {
    Bench::new(runner(settings(url)))
}

/// TP-36 to TP-46, TP-73, TP-81: the body, the address as configured, the result.
#[tokio::test]
async fn a_call_is_one_post() {
    let mut service = Service::start(&[]);
    let url = service.url("/any/path?with=query");
    let mut settings = settings(url.clone());
    settings.entry = Some("tools.sample_tool:greet".to_owned());
    settings.token = BearerSecret::new("t0ken");
    assert_eq!(format!("{:?}", settings.token), "Some(…)");
    let bench = Bench::new(runner(settings));
    let payload = json!({ "do": "echo", "n": 1.5, "name": "Ada" });
    assert_eq!(bench.value(payload.clone()).await, payload);
    let wanted = json!({
        "path": "/any/path?with=query",
        "connection": 1,
        "authorization": "Bearer t0ken",
        "type": "application/json",
        "body": {
            "protocol_version": 1,
            "tool_name": "test/tool",
            "kind": "python",
            "entry": "tools.sample_tool:greet",
            "payload": payload,
            "timeout_ms": crate::support::LONG.as_secs() * 1000,
            "project": { "app_root": "/path/to/app", "flow": null },
        },
    });
    assert_eq!(service.told().await, wanted);
    assert_eq!(
        bench.sink.facts(),
        [
            ("service_url", url.as_str()),
            ("service_handshake", "false")
        ]
        .map(|(name, value)| format!("{name}={value}"))
    );
    // The next call goes by the same connection.
    bench.value(json!({ "do": "echo" })).await;
    let second = service.told().await;
    assert_eq!(
        (&second["connection"], &second["body"]["payload"]),
        (&json!(1), &json!({ "do": "echo" }))
    );
}

/// TP-45 to TP-47, and the bounds.
#[tokio::test]
async fn what_replies_mean() {
    let service = Service::start(&[]);
    let bench = bench(service.url("/tools"));
    let says = |text: &str| json!({ "do": "reply", "text": text });
    assert_eq!(
        bench.value(says(r#"{"ok":true,"output":[1]}"#)).await,
        json!([1])
    );
    let fault = bench.run(says(
        r#"{"ok":false,"error":{"type":"ValueError","message":"m"}}"#,
    ));
    let wanted = Fault::ToolFailed {
        error_type: "ValueError".to_owned(),
        message: "m".to_owned(),
        content: None,
    };
    assert_eq!(fault.await.unwrap_err(), wanted);
    for (payload, wanted) in [
        (says(r#"{"ok":false}"#), "tool_failed: Tool error"),
        (says("{}"), "bad_output: bad output: the reply has no `ok`"),
        (says("no"), "bad_output: bad output: the reply is not JSON"),
        (
            json!({ "do": "reply", "status": 500, "text": r#"{"ok":true,"result":1}"# }),
            "crash: the service answered with status 500",
        ),
        (
            json!({ "do": "reply", "status": 302, "text": "" }),
            "crash: the service answered with status 302",
        ),
        (json!({ "do": "hang_up" }), "crash: the service hung up"),
        (json!({ "do": "part" }), "crash: the service hung up"),
    ] {
        let fault = bench.fault(payload.clone()).await;
        assert!(fault.starts_with(wanted), "{payload}: {fault}");
    }
    // The output's bound, at its edge and just past it; and a reply that has no end in sight.
    let sized = |bytes: usize| {
        let text = "x".repeat(bytes - 2);
        says(&json!({ "ok": true, "result": text }).to_string())
    };
    assert!(bench.run(sized(1000)).await.is_ok());
    for bytes in [1001, 200_000] {
        let fault = bench.fault(sized(bytes)).await;
        assert_eq!(fault, "too_large: output exceeds 1000 bytes", "{bytes}");
    }
}

/// P-7: milliseconds are kept, and whoever goes closes the connection behind them.
#[tokio::test]
async fn a_call_that_ends_closes_its_connection() {
    let mut service = Service::start(&[]);
    let mut bench = bench(service.url("/tools"));
    // Long enough for the call to get there.
    bench.timeout = Duration::from_millis(1250);
    let fault = bench.fault(json!({ "do": "hang" })).await;
    assert_eq!(fault, "timeout: timed out after 1250 ms");
    assert_eq!(service.told().await["body"]["timeout_ms"], 1250);
    assert_eq!(service.told().await, json!({ "closed": true }));

    bench.timeout = crate::support::LONG;
    let cancel = bench.cancel.clone();
    let call = bench.fault(json!({ "do": "hang" }));
    let cancelled = async {
        service.told().await;
        cancel.cancel();
        service
    };
    let (fault, mut service) = tokio::join!(call, cancelled);
    assert_eq!(fault, "cancelled: cancelled");
    assert_eq!(service.told().await, json!({ "closed": true }));
}

/// A server that closed a kept connection costs nothing; one that is not there is no failure
/// of the tool.
#[tokio::test]
async fn connections_come_and_go() {
    let mut service = Service::start(&[]);
    let bench = bench(service.url("/tools"));
    for round in 1..=3 {
        bench.value(json!({ "do": "leave" })).await;
        assert_eq!(service.told().await["connection"], round);
        assert_eq!(service.told().await, json!({ "left": true }));
    }
    drop(service);
    let fault = bench.fault(json!({ "do": "echo" })).await;
    assert!(fault.starts_with("unavailable: "), "{fault}");
    let refused = ServiceRunner::new(
        Arc::new(Dialer::new(Vec::new)),
        ServiceSettings {
            token: BearerSecret::new("t"),
            ..settings("http://service.example/".to_owned())
        },
    );
    assert!(refused.unwrap_err().contains("https only"));
}

/// A server that nobody vouches for is not spoken to; one that the roots vouch for is.
#[tokio::test]
async fn over_tls_to_whom_the_roots_vouch_for() {
    let folder = crate::support::folder();
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        // An authority's own certificate is no server's.
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&folder)
        .output()
        .expect("openssl is there");
    assert!(made.status.success(), "{made:?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let both = folder.join("both.pem");
    std::fs::write(&both, read("cert.pem") + &read("key.pem")).unwrap();
    let der = Command::new("openssl")
        .args(["x509", "-in", "cert.pem", "-outform", "DER"])
        .current_dir(&folder)
        .output()
        .unwrap()
        .stdout;

    let service = Service::start(&[&both]);
    let url = format!("https://localhost:{}/tools", service.port);
    let bench_with = |roots: Vec<Vec<u8>>| {
        let dialer = Arc::new(Dialer::new(move || roots.clone()));
        Bench::new(Arc::new(
            ServiceRunner::new(dialer, settings(url.clone())).unwrap(),
        ))
    };
    let payload = json!({ "do": "echo" });
    let stranger = bench_with(Vec::new()).fault(payload.clone()).await;
    assert!(stranger.starts_with("unavailable: "), "{stranger}");
    assert_eq!(bench_with(vec![der]).value(payload.clone()).await, payload);
    std::fs::remove_dir_all(folder).unwrap();
}

fn needs(guarantees: &[Guarantee]) -> Needs {
    let mut needs = Needs::default();
    for one in guarantees {
        needs.guarantees.require(*one, Asker::Tool);
    }
    needs
}

async fn plan(bench: &Bench, payload: Value, asks: Option<Guarantees>) -> Result<Plan, Fault> {
    let (caller, cancel) = (Caller::uid(0), Cancel::new());
    let input = Document::from_value(payload);
    let mut call = Call::new(
        CallId(1),
        &bench.tool.name,
        input,
        caller,
        Wire::Gate,
        cancel,
    );
    call.asks = asks.map(Box::new);
    bench.tool.runner.plan(&call, &bench.tool).unwrap().await
}

fn coverage(planned: Result<Plan, Fault>) -> String {
    match planned {
        Err(fault) => format!("{}: {fault}", fault.kind()),
        Ok(plan) => {
            let detail = plan.enforcement.detail;
            let over = detail.as_ref().is_some_and(|detail| detail.unsafe_override);
            format!("{} override={over}", plan.enforcement.level.as_str())
        }
    }
}

/// TP-48 to TP-58, TP-33, TP-34, P-6: the table of what a caller makes of a handshake.
#[tokio::test]
async fn handshakes_are_heeded() {
    let mut service = Service::start(&[]);
    let url = service.url("/deep/path?q=1");
    let says = |enforcement: &str, supported: Value| json!({ "ok": true, "enforcement": enforcement, "supported_guarantees": supported });
    let network = json!({ "no_network": true });
    let missing = |why: &str| {
        format!("unenforceable: cannot be enforced here: no_network (the service {why})")
    };
    let cases = [
        (
            200,
            says("enforced", network.clone()),
            "enforced override=false".to_owned(),
            "enforced override=false".to_owned(),
        ),
        (
            200,
            json!({ "enforcement": "enforced", "supported_guarantees": network }),
            "enforced override=false".to_owned(),
            "enforced override=false".to_owned(),
        ),
        (
            200,
            says("enforced", json!({})),
            missing("does not support it"),
            "none override=true".to_owned(),
        ),
        (
            200,
            says("partial", network.clone()),
            missing("says: enforcement partial"),
            "partial override=true".to_owned(),
        ),
        (
            200,
            says("none", network.clone()),
            missing("says: enforcement none"),
            "none override=true".to_owned(),
        ),
        (
            200,
            says("", network.clone()),
            missing("says: enforcement none"),
            "none override=true".to_owned(),
        ),
        (
            200,
            says("best", network.clone()),
            missing("says: enforcement best"),
            "none override=true".to_owned(),
        ),
        (
            200,
            json!({ "ok": false, "error": { "message": "unknown tool" } }),
            missing("refuses its handshake: unknown tool"),
            "none override=true".to_owned(),
        ),
        (
            404,
            json!({}),
            missing("answers its handshake with status 404"),
            "none override=true".to_owned(),
        ),
    ];
    for (status, answer, wanted, with_override) in cases {
        service.shakes(status, &answer);
        let mut bench = bench(url.clone());
        bench.tool.needs = Some(Arc::new(needs(&[Guarantee::NoNetwork])));
        assert_eq!(
            coverage(plan(&bench, json!({}), None).await),
            wanted,
            "{answer}"
        );
        // The path and query of the tool's address have no part in it.
        let asked = service.told().await;
        assert_eq!(asked["path"], "/capabilities/handshake");
        assert_eq!(
            asked["body"],
            json!({
                "protocol_version": 1,
                "tool_name": "test/tool",
                "runner": "service",
                "required_guarantees": { "no_network": true },
            })
        );
        // The owner may let it run all the same, and the plan then says so.
        let unsafe_execution = true;
        let mut needs = needs(&[Guarantee::NoNetwork]);
        needs.unsafe_execution = unsafe_execution;
        bench.tool.needs = Some(Arc::new(needs));
        assert_eq!(
            coverage(plan(&bench, json!({}), None).await),
            with_override,
            "{answer}"
        );
    }
}

/// Only what is asked for is asked after; an answer is remembered, for each set of promises.
#[tokio::test]
async fn handshakes_are_remembered() {
    let mut service = Service::start(&[]);
    let six = json!({
        "no_filesystem_read": true, "no_filesystem_write": true, "no_network": true,
        "no_subprocess": true, "no_env_read": true, "no_env_write": true,
        "secrets_allowed": ["A", "B"],
    });
    let answer = json!({ "ok": true, "enforcement": "enforced", "supported_guarantees": six });
    service.shakes(200, &answer);
    let mut bench = bench(service.url("/tools"));
    // Nothing asked for: nothing to shake hands about.
    assert_eq!(
        coverage(plan(&bench, json!({}), None).await),
        "none override=false"
    );

    let mut asks = Guarantees::default();
    asks.allow_secrets(BTreeSet::from(["A".to_owned()]), Asker::User);
    for _ in 0..3 {
        let planned = plan(&bench, json!({}), Some(asks.clone())).await.unwrap();
        let held = &planned.enforcement.detail.as_ref().unwrap().held;
        assert_eq!(held.len(), 1);
        assert_eq!(
            (held[0].guarantee, held[0].asker, held[0].level),
            (
                Some(Guarantee::SecretsAllowed),
                Asker::User,
                Level::Enforced
            )
        );
        assert_eq!(held[0].mechanisms, ["service handshake"]);
    }
    asks.require(Guarantee::NoEnvRead, Asker::User);
    plan(&bench, json!({}), Some(asks.clone())).await.unwrap();
    // More secrets than the service can hold the tool to.
    let mut many = Guarantees::default();
    many.allow_secrets(
        BTreeSet::from(["A".to_owned(), "Z".to_owned()]),
        Asker::User,
    );
    let refused = coverage(plan(&bench, json!({}), Some(many)).await);
    assert!(
        refused.contains("secrets_allowed (the service does not support it)"),
        "{refused}"
    );

    // All of it is told to the trace, and by `outlook`.
    bench.tool.needs = Some(Arc::new(needs(&[Guarantee::NoNetwork])));
    let outlook = bench.tool.runner.outlook(&bench.tool).unwrap();
    assert_eq!(outlook.len(), 7);
    assert!(outlook.iter().all(|held| held.level == Level::None));
    plan(&bench, json!({}), None).await.unwrap();
    let outlook = bench.tool.runner.outlook(&bench.tool).unwrap();
    assert!(
        outlook
            .iter()
            .filter(|held| held.level == Level::Enforced)
            .count()
            >= 6
    );
    bench.value(json!({ "do": "echo" })).await;
    assert_eq!(
        bench.sink.facts()[1..],
        ["service_handshake=true", "enforcement_level=enforced"]
    );
    let mut paths = Vec::new();
    while paths.len() < 5 {
        paths.push(service.told().await["path"].clone());
    }
    let shake = json!("/capabilities/handshake");
    assert_eq!(
        paths,
        [&shake, &shake, &shake, &shake, &json!("/tools")].map(Clone::clone)
    );
}

/// A failure is forgotten after ten seconds, an answer that covers after five minutes. The
/// clock is the test's: it stands still but while the service is asked.
#[tokio::test]
async fn handshakes_expire() {
    let mut service = Service::start(&[]);
    let mut bench = bench(service.url("/tools"));
    bench.tool.needs = Some(Arc::new(needs(&[Guarantee::NoNetwork])));
    let refused = "unenforceable: cannot be enforced here: no_network (the service answers its handshake with status 404)";
    assert_eq!(coverage(plan(&bench, json!({}), None).await), refused);
    tokio::time::pause();
    let network = json!({ "no_network": true });
    let answer = json!({ "enforcement": "enforced", "supported_guarantees": network });
    service.shakes(200, &answer);
    assert_eq!(coverage(plan(&bench, json!({}), None).await), refused);
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    assert_eq!(
        coverage(plan(&bench, json!({}), None).await),
        "enforced override=false"
    );
    tokio::time::pause();
    service.shakes(500, &json!({}));
    tokio::time::advance(Duration::from_secs(299)).await;
    assert_eq!(
        coverage(plan(&bench, json!({}), None).await),
        "enforced override=false"
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert!(coverage(plan(&bench, json!({}), None).await).contains("status 500"));
    for _ in 0..3 {
        assert_eq!(service.told().await["path"], "/capabilities/handshake");
    }
}

/// Without a handshake nothing can be promised; with one that is always due, a service that
/// is away keeps its tools away.
#[tokio::test]
async fn never_and_always() {
    let service = Service::start(&[]);
    let mut never = settings(service.url("/tools"));
    never.handshake = HandshakeWhen::Never;
    let mut bench = Bench::new(runner(never));
    bench.tool.needs = Some(Arc::new(needs(&[Guarantee::NoSubprocess])));
    let refused = coverage(plan(&bench, json!({}), None).await);
    assert!(
        refused.contains("no_subprocess (the service is not asked"),
        "{refused}"
    );

    let mut always = settings(service.url("/tools"));
    always.handshake = HandshakeWhen::Always;
    let bench = Bench::new(runner(always.clone()));
    let refused = coverage(plan(&bench, json!({}), None).await);
    assert!(refused.contains("status 404"), "{refused}");
    service.shakes(200, &json!({ "enforcement": "none" }));
    let bench = Bench::new(runner(always));
    assert_eq!(
        coverage(plan(&bench, json!({}), None).await),
        "none override=false"
    );
}

/// A payload with a secret in it that the tool may not have does not leave.
#[tokio::test]
async fn secrets_do_not_leave() {
    let service = Service::start(&[]);
    let network = json!({ "secrets_allowed": [] });
    service.shakes(
        200,
        &json!({ "enforcement": "enforced", "supported_guarantees": network }),
    );
    let mut settings = settings(service.url("/tools"));
    let pairs = vec![("OPENAI_API_KEY".to_owned(), "sk-12345".to_owned())];
    settings.secrets = Arc::new(NamedSecrets::new(pairs));
    let bench = Bench::new(runner(settings));
    let leak = json!({ "do": "echo", "text": "my key is sk-12345" });
    assert_eq!(
        coverage(plan(&bench, leak.clone(), None).await),
        "none override=false"
    );
    let mut asks = Guarantees::default();
    asks.allow_secrets(BTreeSet::new(), Asker::Tool);
    let refused = coverage(plan(&bench, leak, Some(asks.clone())).await);
    assert_eq!(
        refused,
        "guarantee_blocked: blocked by guarantee secrets_allowed"
    );
    let clean = coverage(plan(&bench, json!({ "do": "echo" }), Some(asks)).await);
    assert_eq!(clean, "enforced override=false");
}
