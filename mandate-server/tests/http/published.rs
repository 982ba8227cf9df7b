//! What the public listener publishes beside the key set: the contract, and the reference that shows it.

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
    let root = get(&world, "/").await;
    assert_eq!((root.status(), header(&root, "Location")), (StatusCode::FOUND, "/reference"));

    let page = get(&world, "/reference").await;
    assert_eq!(header(&page, "Content-Type"), "text/html; charset=utf-8");
    let policy = header(&page, "Content-Security-Policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");

    let html = page.text().await.unwrap();
    assert!(!html.contains("://"), "{html}");
    let loaded = html.split(['"', '\'']).filter(|text| text.starts_with('/'));
    let mut files = 0;
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
        }
        files += 1;
    }
    assert_eq!(files, 4, "a style, two scripts and the contract");
    let start = get(&world, "/reference/start.js").await.text().await.unwrap();
    assert!(start.contains("validatorUrl: null"), "the badge would ask another host");
}
