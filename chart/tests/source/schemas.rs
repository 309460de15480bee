//! Schemas that a chart's schema refers to by address. The texts are Helm's for the same chart and answers.

use chart::source::{SchemaFetcher, Settings};
use chart::values::schema::{self, RemoteSchemas};
use chart::{Chart, Metadata};
use rstest::rstest;
use serde_json::json;

use super::server::{Server, answer};

async fn schemas() -> Server {
    Server::plain(|seen| match seen.path.as_str() {
        "/ok.json" => {
            let a = json!({"type": "string"});
            let schema = json!({"type": "object", "properties": {"a": a}, "required": ["b"]});
            answer(200, schema.to_string())
        }
        "/relative.json" => answer(200, r#"{"$ref": "ok.json"}"#),
        "/broken.json" => answer(200, r#"{"type":"#),
        "/large.json" => answer(200, format!(r#"{{"title": "{}"}}"#, "x".repeat(5 << 20))),
        "/other.json" => answer(200, r#"{"$ref": "other.json?again"}"#),
        _ => answer(404, "nothing here"),
    })
    .await
}

/// What is wrong with `{"a": 1}` for a chart whose schema is at an address.
fn fault(address: &str, remote: Option<&dyn RemoteSchemas>) -> String {
    let chart = Chart {
        metadata: Metadata {
            name: "c".to_owned(),
            ..Metadata::default()
        },
        schema: Some(json!({ "$ref": address }).to_string().into()),
        ..Chart::default()
    };
    let checked = schema::validate(
        &chart,
        &json!({"a": 1}),
        remote,
        &mut chart::Warnings::default(),
    );
    checked.expect_err("values that do not fit").to_string()
}

#[rstest]
#[case::fetched(
    "ok.json",
    "- at '': validation failed\n  - at '': missing property 'b'\n  - at '/a': got number, want string\n"
)]
#[case::from_a_fetched_one(
    "relative.json",
    "- at '': validation failed\n  - at '': missing property 'b'\n  - at '/a': got number, want string\n"
)]
#[case::a_part("ok.json#/properties/a", "- at '': got object, want string\n")]
#[case::no_such_part("ok.json#/nope", "json-pointer in \"AT/ok.json#/nope\" not found")]
#[case::cut_off("broken.json", "failing loading \"AT/broken.json\": unexpected EOF")]
#[case::missing(
    "none.json",
    "failing loading \"AT/none.json\": HTTP request to AT/none.json returned status 404 (Not Found)"
)]
#[case::too_large(
    "large.json",
    "failing loading \"AT/large.json\": HTTP request failed for AT/large.json: "
)]
#[tokio::test]
async fn schemas_by_address_are_fetched_where_that_is_wanted(
    #[case] path: &str,
    #[case] want: &str,
) {
    let server = schemas().await;
    let at = format!("http://{}", server.address);
    let address = format!("{at}/{path}");
    let remote = SchemaFetcher::new(Settings::default());
    let got = tokio::task::spawn_blocking(move || fault(&address, Some(&remote)));
    let got = got.await.unwrap();
    let want = want.replace("AT", &at);
    assert!(got.contains(&want), "{got}\nhas no\n{want}");
}

#[tokio::test]
async fn schema_addresses_are_not_asked_without_a_fetcher() {
    let server = schemas().await;
    let address = format!("http://{}/ok.json", server.address);
    let refused = format!("failing loading \"{address}\": fetching schemas is switched off");
    assert!(fault(&address, None).contains(&refused));
    assert!(server.seen().is_empty());
}
