//! What the public listener publishes beside the key set: the contract, and the reference that shows it.

use std::collections::BTreeSet;

use mandate_server::http::openapi::{self, CONTRACT_PATH, Hosts};
use reqwest::{Response, StatusCode};

use crate::world::World;

async fn get(world: &World, path: &str) -> Response {
    let http =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    http.get(format!("{}{path}", world.running.urls.docs)).send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn the_contract_is_published_with_the_servers_own_addresses() {
    let world = World::start().await;
    let response = get(&world, CONTRACT_PATH).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "Content-Type"), "application/yaml");
    assert_eq!(header(&response, "Cache-Control"), "public, max-age=300");
    assert!(header(&response, "X-Request-Id").starts_with("req_"));
    let etag = header(&response, "ETag").to_owned();
    let urls = &world.running.urls;
    let yaml = response.text().await.unwrap();
    assert_eq!(yaml, openapi::yaml(Hosts { base: &urls.base, verdicts: &urls.verdicts }).unwrap());
    assert!(yaml.contains(&format!("servers:\n- url: {}\n", urls.base.trim_end_matches("/v1"))));
    assert!(yaml.contains(&format!("- url: {}\n", urls.verdicts)));

    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let again = http.get(format!("{}{CONTRACT_PATH}", urls.docs)).header("If-None-Match", &etag);
    let again = again.send().await.unwrap();
    assert_eq!((again.status(), header(&again, "ETag")), (StatusCode::NOT_MODIFIED, etag.as_str()));
    let posted = http.post(format!("{}{CONTRACT_PATH}", urls.docs)).send().await.unwrap();
    assert_eq!((posted.status(), header(&posted, "Allow")), (StatusCode::BAD_REQUEST, ""));
}

#[tokio::test]
async fn the_reference_loads_nothing_from_elsewhere() {
    let world = World::start().await;
    let page = get(&world, "/reference").await;
    assert_eq!(header(&page, "Content-Type"), "text/html; charset=utf-8");
    let policy = header(&page, "Content-Security-Policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(policy.contains("; require-trusted-types-for 'script'; "), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");

    let html = page.text().await.unwrap();
    assert!(!html.contains("://"), "{html}");
    // Links to the other pages load nothing.
    let is_file = |text: &&str| [".js", ".css", ".yaml"].iter().any(|kind| text.ends_with(kind));
    let loaded: BTreeSet<_> =
        html.split(['"', '\'', '>', '<']).filter(|text| text.starts_with('/')).filter(is_file).collect();
    let (mut files, mut asks_for_no_key) = (0, false);
    for path in loaded {
        let file = get(&world, path).await;
        assert_eq!(file.status(), StatusCode::OK, "{path}");
        assert_eq!(header(&file, "X-Content-Type-Options"), "nosniff");
        let kind = match path.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "application/yaml",
        };
        assert_eq!(header(&file, "Content-Type"), kind, "{path}");
        if kind.starts_with("text/css") {
            let css = file.text().await.unwrap();
            assert!(
                !css.contains("@import") && !css.contains("url(http") && !css.contains("url(//"),
                "{path}"
            );
        } else if kind.starts_with("text/javascript") {
            let script = file.text().await.unwrap();
            // The badge would ask another host.
            asks_for_no_key |=
                script.contains("validatorUrl: null") && script.contains("authorizeBtn: nothing");
        }
        files += 1;
    }
    assert_eq!(files, 5, "two styles, two scripts and the contract");
    assert!(asks_for_no_key);
}

/// The paths that a page names in attributes.
fn named(html: &str) -> Vec<String> {
    let paths = html.split('"').filter(|text| text.starts_with('/'));
    paths.map(str::to_owned).collect()
}

#[tokio::test]
async fn pages_say_what_the_host_is_and_load_nothing_from_elsewhere() {
    let world = World::start().await;
    let issuer = world.running.urls.verdicts.clone();
    let mut files = std::collections::BTreeSet::new();
    for path in ["/", "/verify", "/log"] {
        let page = get(&world, path).await;
        assert_eq!(
            (page.status(), header(&page, "Content-Type")),
            (StatusCode::OK, "text/html; charset=utf-8")
        );
        assert_eq!(header(&page, "Cache-Control"), "no-cache");
        let policy = header(&page, "Content-Security-Policy").to_owned();
        assert!(
            policy.starts_with("default-src 'none'; ") && policy.ends_with("trusted-types 'none'"),
            "{policy}"
        );
        assert_eq!(policy.contains("'wasm-unsafe-eval'"), path == "/verify");
        assert_eq!(policy.contains("script-src"), path != "/");
        assert_eq!(policy.contains("form-action 'self'"), path == "/log");
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
        let html = page.text().await.unwrap();
        assert!(html.contains(&issuer), "{html}");
        assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains(" onclick="));
        files.extend(named(&html));
        let lead: Vec<_> = ["/verify", "/log", "/reference", "/.well-known/jwks.json"]
            .into_iter()
            .filter(|place| !html.contains(&format!("href=\"{place}\"")))
            .collect();
        assert!(lead.is_empty(), "{path} does not lead to {lead:?}");
    }
    let kinds = [
        ("css", "text/css; charset=utf-8"),
        ("js", "text/javascript; charset=utf-8"),
        ("wasm", "application/wasm"),
    ];
    for path in &files {
        let file = get(&world, path).await;
        assert_eq!(file.status(), StatusCode::OK, "{path}");
        if path.starts_with("/pages/") {
            let kind = kinds.iter().find(|(extension, _)| path.ends_with(extension)).unwrap().1;
            assert_eq!(header(&file, "Content-Type"), kind);
            assert_eq!(header(&file, "Cache-Control"), "public, max-age=31536000, immutable");
        }
    }
    assert_eq!(files.iter().filter(|path| path.starts_with("/pages/")).count(), 4, "{files:?}");
    assert_eq!(get(&world, "/pages/0.css").await.status(), StatusCode::NOT_FOUND);
}
