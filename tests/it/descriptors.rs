//! A limit of open files is raised where that is allowed, and never closes the server.

use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::harness::TestServer;

/// A limit that the server has to live with.
const FILES: usize = 256;
/// More than that.
const CONNECTIONS: usize = 600;

/// Connections to the API that say nothing. Those for which the server has no room wait in the operating system's queue.
fn idle(server: &TestServer) -> Vec<TcpStream> {
    let base = server.ready("base_url").strip_prefix("http://").unwrap();
    let api: SocketAddr = base.split('/').next().unwrap().parse().unwrap();
    (0..CONNECTIONS).map(|_| TcpStream::connect(api).unwrap()).collect()
}

#[test]
fn a_soft_limit_of_open_files_is_raised() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_with_open_files(data.path(), FILES, true);
    let idle = idle(&server);
    assert_eq!(server.demo().client.get("/agents").status, 200);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    drop(idle);
}

#[test]
fn idle_connections_leave_descriptors_for_everything_else() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_with_open_files(data.path(), FILES, false);
    let settings: Value = {
        let shell = format!(r#"ulimit -n {FILES}; exec "$0" config print --json"#);
        let mut command = std::process::Command::new("/bin/sh");
        command.env_clear().args(["-c", &shell]).arg(crate::harness::binary("mandate-server"));
        crate::harness::Ran::from(command.output().unwrap()).code(0).json()
    };
    let value = |name: &str| {
        let found = settings.as_array().unwrap().iter().find(|setting| setting["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {settings}"))["value"].as_u64().unwrap()
    };
    assert_eq!((value("open_files"), value("api_connections")), (FILES as u64, 96));
    let kept = ["kept_files", "deliveries", "idle_deliveries", "downloads"].map(value);
    assert_eq!(kept, [128, 48, 16, 8]);

    let idle = idle(&server);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    assert_eq!(server.stranger("verdicts_url").get("/.well-known/jwks.json").status, 200);
    assert!(!server.logged().contains("Too many open files"), "{}", server.logged());
    drop(idle);
    assert_eq!(server.demo().client.get("/agents").status, 200);
}
