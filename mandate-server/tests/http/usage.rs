//! GET /v1/usage

use serde_json::json;

use crate::server::Server;

#[tokio::test]
async fn usage_is_read_by_month_and_agent() {
    let server = Server::start().await;
    let (a, b) = (server.agent("a").await, server.agent("b").await);
    server.ask(&a, json!(40)).await;
    server.ask(&b, json!(60)).await;
    let organization = &server.organization_key;
    let agents = async |key: &str, path: &str| {
        let read = server.read(key, path, 200).await;
        let rows = read["data"].as_array().unwrap().clone();
        rows.iter().map(|row| row["agent"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(agents(organization, "/usage").await, ["agt_a", "agt_b"]);
    assert_eq!(agents(organization, "/usage?month=2026-06&agent=agt_b").await, ["agt_b"]);
    assert_eq!(agents(&a, "/usage").await, ["agt_a"]);
    assert!(agents(&a, "/usage?agent=agt_b").await.is_empty());
    assert!(agents(organization, "/usage?month=2026-05").await.is_empty());
    assert!(agents(&server.stranger(), "/usage").await.is_empty());

    let page = server.read(organization, "/usage?limit=1", 200).await;
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (1, &json!(true)));
    let next = format!("/usage?limit=100&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(agents(organization, &next).await, ["agt_b"]);

    for (query, message) in [
        ("month=june", "month must be a month in the form YYYY-MM; got `june`"),
        ("agent=a", "agent must be `agt_` and the agent's name, [a-z0-9][a-z0-9_-]{0,63}; got `a`"),
        ("cursor=cur_x", "cursor expired or malformed"),
        ("limit=0", "limit must be an integer between 1 and 100"),
        ("limit=101", "limit must be an integer between 1 and 100"),
        ("page=5", "page is not a known parameter; known are month, agent, limit, cursor"),
    ] {
        let refused = server.read(organization, &format!("/usage?{query}"), 400).await;
        assert_eq!(refused["error"]["message"], message);
    }
}
