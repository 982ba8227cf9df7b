//! Precedence of settings, and the messages about invalid ones.
#![expect(clippy::result_large_err, reason = "the shape of figment's own test harness")]

use figment::Jail;

use super::check::{base_url, console_url, issuer_url, site_url};
use super::*;

/// What `Settings::load` refuses with when a file, variables and flags are as given.
fn refused(file: &str, variables: &[(&str, &str)], flags: &Flags) -> String {
    let mut message = String::new();
    Jail::expect_with(|jail| {
        let mut flags = flags.clone();
        if !file.is_empty() {
            jail.create_file("server.toml", file)?;
            flags.config = Some("server.toml".into());
        }
        for (name, value) in variables {
            jail.set_env(name, value);
        }
        message = Settings::load(&flags).unwrap_err().to_string();
        Ok(())
    });
    message
}

fn flags(server: ServerFlags) -> Flags {
    Flags { server, ..Flags::default() }
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    Jail::expect_with(|jail| {
        assert_eq!(Settings::load(&Flags::default()).unwrap().api_address.to_string(), "127.0.0.1:8080");
        jail.create_file(
            "server.toml",
            "api_address = \"127.0.0.1:1\"\nreview_expiry_seconds = 7\nbehind_proxy = true",
        )?;
        jail.set_env("MANDATE_CONFIG", "server.toml");
        let from_file = Settings::load(&Flags::default()).unwrap();
        assert_eq!((from_file.api_address.port(), from_file.review_expiry_seconds), (1, 7));
        jail.set_env("MANDATE_API_ADDRESS", "127.0.0.1:2");
        jail.set_env("MANDATE_REVIEW_EXPIRY_SECONDS", "8");
        jail.set_env("MANDATE_AGENT_KEY", "another program's variable");
        let from_variables = Settings::load(&Flags::default()).unwrap();
        assert_eq!((from_variables.api_address.port(), from_variables.review_expiry_seconds), (2, 8));
        let typed =
            flags(ServerFlags { api_address: Some("127.0.0.1:3".to_owned()), ..ServerFlags::default() });
        let from_flags = Settings::load(&typed).unwrap();
        assert_eq!((from_flags.api_address.port(), from_flags.review_expiry_seconds), (3, 8));
        Ok(())
    });
}

#[test]
fn every_refusal_names_the_setting_and_its_source() {
    let none = Flags::default();
    for (file, variables, flags, message) in [
        (
            "",
            &[("MANDATE_API_ADDRESS", "here")][..],
            &none,
            "api_address (environment variable MANDATE_API_ADDRESS): must be an IP address and a port, such as 127.0.0.1:8080; got `here`",
        ),
        (
            "database = \"mysql://user:password@host\"",
            &[],
            &none,
            "database (file server.toml): must be sqlite:// and the path of a file, such as sqlite://mandate.db, or the URL of a PostgreSQL database, such as postgres://mandate@localhost/mandate; got `mysql://…`",
        ),
        (
            "",
            &[],
            &flags(ServerFlags { log_level: Some("loud".to_owned()), ..ServerFlags::default() }),
            "log_level (flag --log-level): must be off, error, warn, info, debug or trace; got `loud`",
        ),
        (
            "",
            &[("MANDATE_REVIEW_EXPIRY_SECONDS", "soon")],
            &none,
            "review_expiry_seconds (environment variable MANDATE_REVIEW_EXPIRY_SECONDS): invalid type: found string \"soon\", expected i64",
        ),
        (
            "review_expiry_seconds = 0",
            &[],
            &none,
            "review_expiry_seconds (file server.toml): must be between 1 and 31622400; got `0`",
        ),
        (
            "",
            &[("MANDATE_BASE_URL", "http://api.example.com/v1")],
            &none,
            "base_url (environment variable MANDATE_BASE_URL): must be an https URL that ends in /v1, such as https://api.example.com/v1; got `http://api.example.com/v1`",
        ),
        (
            "verdicts_url = \"https://verdicts.example.com/\"",
            &[],
            &none,
            "verdicts_url (file server.toml): must be an https URL without a slash at its end, such as https://verdicts.example.com; got `https://verdicts.example.com/`",
        ),
        (
            "verdicts_url = \"https://example.com:0\"",
            &[],
            &none,
            "verdicts_url (file server.toml): must have a port from 1 to 65535; got `https://example.com:0`",
        ),
        (
            "base_url = \"https://example.com:0/v1\"",
            &[],
            &none,
            "base_url (file server.toml): must have a port from 1 to 65535; got `https://example.com:0/v1`",
        ),
        (
            "behind_proxy = true\nops_address = \"0.0.0.0:9090\"\napi_address = \"0.0.0.0:80\"",
            &[],
            &none,
            "base_url (default): is needed: clients cannot tell it from the listener's address, 0.0.0.0:80",
        ),
    ] {
        assert_eq!(refused(file, variables, flags), message);
    }
}

#[test]
fn settlement_takes_a_url_where_it_is_http_and_nowhere_else() {
    let (adapter, url) = ("MANDATE_SETTLEMENT", "MANDATE_SETTLEMENT_URL");
    for (variables, message) in [
        (
            &[(adapter, "bank")][..],
            "settlement (environment variable MANDATE_SETTLEMENT): must be local or http; got `bank`",
        ),
        (&[(adapter, "http")], "settlement_url (default): is needed where settlement is http"),
        (
            &[(url, "https://provider.example")],
            "settlement_url (environment variable MANDATE_SETTLEMENT_URL): is of no use where settlement is local",
        ),
        (
            &[(adapter, "http"), (url, "http://provider.example")],
            "settlement_url (environment variable MANDATE_SETTLEMENT_URL): must be an https URL without a slash at \
             its end, such as https://verdicts.example.com; got `http://provider.example`",
        ),
        (
            &[(adapter, "http"), (url, "https://name:secret@provider.example")],
            "settlement_url (environment variable MANDATE_SETTLEMENT_URL): must be an https URL without a slash at \
             its end, such as https://verdicts.example.com; got one with a user or a query, which is not repeated here",
        ),
    ] {
        assert_eq!(refused("", variables, &Flags::default()), message);
    }
    Jail::expect_with(|jail| {
        jail.set_env(adapter, "http");
        jail.set_env(url, "https://provider.example/in");
        let settings = Settings::load(&Flags::default()).unwrap();
        assert_eq!(settings.settlement, SettlementSetting::Http("https://provider.example/in".to_owned()));
        Ok(())
    });
}

#[test]
fn networks_of_webhooks_are_named_in_a_list() {
    let networks = || {
        let settings = Settings::load(&Flags::default()).unwrap();
        settings.webhook_networks.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    Jail::expect_with(|jail| {
        assert!(networks().is_empty());
        jail.create_file("server.toml", "webhook_networks = [\"10.20.0.0/16\", \"fd00:20::/32\"]")?;
        jail.set_env("MANDATE_CONFIG", "server.toml");
        assert_eq!(networks(), ["10.20.0.0/16", "fd00:20::/32"]);
        jail.set_env("MANDATE_WEBHOOK_NETWORKS", "10.30.0.0/16, 192.168.7.1/32");
        assert_eq!(networks(), ["10.30.0.0/16", "192.168.7.1/32"]);
        let flags = flags(ServerFlags {
            webhook_networks: vec!["10.40.0.0/16".to_owned(), "10.50.0.0/16".to_owned()],
            ..ServerFlags::default()
        });
        assert_eq!(Settings::load(&flags).unwrap().webhook_networks.len(), 2);
        Ok(())
    });
    for (value, shown) in [("10.20.0.1/16", "10.20.0.1/16"), ("10.0.0.1", "10.0.0.1"), ("lan", "lan")] {
        let message = refused("", &[("MANDATE_WEBHOOK_NETWORKS", value)], &Flags::default());
        let wanted = format!(
            "webhook_networks (environment variable MANDATE_WEBHOOK_NETWORKS): must be networks in CIDR notation, each its \
             first address and the bits of its prefix, such as 10.20.0.0/16 or fd00:20::/32; got `{shown}`"
        );
        assert_eq!(message, wanted);
    }
}

#[test]
fn names_that_are_not_known_are_refused_in_the_file() {
    let message = refused("adress = 1", &[], &Flags::default());
    assert!(message.starts_with("adress (file server.toml): unknown field"), "{message}");
    let message = refused("master_key = \"00\"", &[], &Flags::default());
    assert!(message.starts_with("master_key (file server.toml): unknown field"), "{message}");
    let message = refused("= 1", &[], &Flags::default());
    assert!(message.starts_with("configuration (file server.toml): "), "{message}");
}

#[test]
fn plain_http_beyond_this_machine_must_be_asked_for_in_so_many_words() {
    let message = refused("", &[("MANDATE_PUBLIC_ADDRESS", "0.0.0.0:8081")], &Flags::default());
    assert!(message.contains("say so with behind_proxy"), "{message}");
    Jail::expect_with(|jail| {
        jail.set_env("MANDATE_BEHIND_PROXY", "true");
        jail.set_env("MANDATE_PUBLIC_ADDRESS", "0.0.0.0:8081");
        jail.set_env("MANDATE_VERDICTS_URL", "https://verdicts.example.com");
        assert_eq!(Settings::load(&Flags::default()).unwrap().public_address.port(), 8081);
        Ok(())
    });
}

#[test]
fn a_missing_file_is_reported_with_its_source() {
    Jail::expect_with(|jail| {
        jail.set_env("MANDATE_CONFIG", "absent.toml");
        let message = Settings::load(&Flags::default()).unwrap_err().to_string();
        assert!(message.starts_with(
            "config (environment variable MANDATE_CONFIG): the file absent.toml cannot be read"
        ));
        Ok(())
    });
}

#[test]
fn the_master_key_comes_from_one_place_and_is_never_repeated() {
    Jail::expect_with(|jail| {
        let refused = master_key().unwrap_err().to_string();
        assert!(refused.contains("openssl rand -hex 32"), "{refused}");
        let key = "ab".repeat(32);
        jail.set_env("MANDATE_MASTER_KEY", &key[1..]);
        let refused = master_key().unwrap_err().to_string();
        assert!(refused.contains("64 hexadecimal") && !refused.contains("baba"), "{refused}");
        jail.set_env("MANDATE_MASTER_KEY", &key);
        let config = Config { settings: Settings::default(), master_key: master_key().unwrap() };
        assert!(!format!("{config:?}").contains("abab"));
        jail.create_file("key", &format!("{key}\n"))?;
        jail.set_env("MANDATE_MASTER_KEY_FILE", "key");
        assert!(master_key().unwrap_err().to_string().contains("set one of them"));
        jail.set_env("MANDATE_MASTER_KEY", "");
        assert!(master_key().is_ok());
        Ok(())
    });
}

#[test]
fn urls() {
    for (ok, text) in [
        (true, "https://api.example.com/v1"),
        (true, "http://127.0.0.1:8080/v1"),
        (true, "http://[::1]:8080/v1"),
        (true, "http://localhost/v1"),
        (false, "http://10.0.0.1/v1"),
        (false, "https://api.example.com/v1/"),
        (false, "https://user@api.example.com/v1"),
        (false, "https://api.example.com/v1?x=/v1"),
        (false, "api.example.com/v1"),
        (false, "/v1"),
        (false, "https:///v1"),
        (false, "ftp://api.example.com/v1"),
    ] {
        assert_eq!(base_url(text).is_ok(), ok, "{text}");
    }
    assert!(
        site_url("https://docs.example.com/mandate").is_ok()
            && site_url("https://docs.example.com/").is_err()
    );
}

#[test]
fn a_console_is_at_an_origin_with_a_name() {
    for text in ["https://console.example.com", "https://console.example.com:8443", "http://localhost:8083"] {
        assert_eq!(console_url(text).as_deref(), Ok(text));
    }
    for text in [
        "https://console.example.com/",
        "https://console.example.com/x",
        "https://Console.example.com",
        "https://console.example.com:443",
        "http://console.example.com",
        "https://127.0.0.1",
        "http://127.0.0.1:8083",
        "https://[::1]:8083",
        "console.example.com",
    ] {
        let refused = console_url(text).unwrap_err();
        assert!(refused.contains("must be the origin of a site") && refused.contains(text), "{refused}");
    }
}

#[test]
fn a_console_is_there_only_if_it_is_named() {
    let unnamed = Settings::default();
    assert_eq!((unnamed.console_address, unnamed.console_url), (None, None));
    let beyond = "tls_certificate = \"a.pem\"\ntls_key = \"a.key\"\nconsole_address = \"0.0.0.0:8083\"\n";
    let refused = refused(beyond, &[], &Flags::default());
    assert!(refused.starts_with("console_url (default): is needed: clients cannot tell it"), "{refused}");
    Jail::expect_with(|jail| {
        jail.create_file("server.toml", &format!("{beyond}console_url = \"https://c.example\""))?;
        let flags = Flags { config: Some("server.toml".into()), ..Flags::default() };
        let named = Settings::load(&flags).unwrap();
        assert!(named.console_tls.is_some() && named.console_tls == named.tls);
        Ok(())
    });
}

#[test]
fn the_issuer_is_written_in_its_normal_form() {
    for (text, normal) in [
        ("https://Verdicts.Example.com", "https://verdicts.example.com"),
        ("HTTPS://verdicts.example.com", "https://verdicts.example.com"),
        ("https://verdicts.example.com:443", "https://verdicts.example.com"),
        ("https://verdicts.example.com/a/../b", "https://verdicts.example.com/b"),
        ("https://127.1", "https://127.0.0.1"),
        ("https://[0:0::1]:8443", "https://[::1]:8443"),
        ("http://localhost:80", "http://localhost"),
    ] {
        let refused = issuer_url(text).unwrap_err();
        assert!(
            refused.starts_with(&format!("must be written as `{normal}`: "))
                && refused.ends_with(&format!("; got `{text}`")),
            "{refused}"
        );
        assert_eq!(issuer_url(normal).as_deref(), Ok(normal));
    }
    for text in ["https://verdicts.example.com:8443", "https://example.com/verdicts", "http://127.0.0.1:8081"]
    {
        assert_eq!(issuer_url(text).as_deref(), Ok(text));
    }
    assert!(
        issuer_url("https://verdicts.example.com/").is_err(),
        "what no site may be, an issuer may not be"
    );
}

#[test]
fn tls_takes_a_certificate_and_its_key_and_lets_the_listener_be_reached() {
    for (variables, message) in [
        (
            &[("MANDATE_TLS_CERTIFICATE", "a.pem")][..],
            "tls_key (default): is needed where tls_certificate is set",
        ),
        (
            &[("MANDATE_PUBLIC_TLS_KEY", "b.key")],
            "public_tls_certificate (default): is needed where public_tls_key is set",
        ),
        (
            &[("MANDATE_DRAIN_DELAY_SECONDS", "601")],
            "drain_delay_seconds (environment variable MANDATE_DRAIN_DELAY_SECONDS): must be at most 600; got `601`",
        ),
    ] {
        assert_eq!(refused("", variables, &Flags::default()), message);
    }
    let tls = "tls_certificate = \"a.pem\"\ntls_key = \"a.key\"\nbase_url = \"https://a/v1\"\n";
    let refused = refused(&format!("{tls}ops_address = \"0.0.0.0:1\""), &[], &Flags::default());
    assert!(refused.starts_with("ops_address (file server.toml): 0.0.0.0:1 can be reached"), "{refused}");
    Jail::expect_with(|jail| {
        jail.create_file("server.toml", &format!("{tls}api_address = \"0.0.0.0:1\""))?;
        jail.set_env("MANDATE_CONFIG", "server.toml");
        let settings = Settings::load(&Flags::default()).unwrap();
        let files = TlsFiles { certificate: "a.pem".into(), key: "a.key".into() };
        assert_eq!((&settings.tls, &settings.public_tls), (&Some(files.clone()), &Some(files)));
        Ok(())
    });
}

#[test]
fn a_collector_of_traces_is_named_by_its_address() {
    let collector = || Settings::load(&Flags::default()).unwrap().collector;
    Jail::expect_with(|jail| {
        assert_eq!(collector(), None);
        jail.set_env("MANDATE_OTLP_ENDPOINT", "https://collector.example:4318/otlp");
        let endpoint = "https://collector.example:4318/otlp".to_owned();
        let sampling_ratio = DEFAULT_SAMPLING_RATIO;
        assert_eq!(collector(), Some(Collector { endpoint: endpoint.clone(), sampling_ratio }));
        for (variable, sampling_ratio) in [("1", 1.0), ("0.25", 0.25), ("0", 0.0)] {
            jail.set_env("MANDATE_OTLP_SAMPLING_RATIO", variable);
            assert_eq!(collector(), Some(Collector { endpoint: endpoint.clone(), sampling_ratio }));
        }
        Ok(())
    });
    for endpoint in ["localhost:4318", "grpc://c:4317", "http://u:p@c", "http://c/", "http://c/v1/traces"] {
        let message = refused("", &[("MANDATE_OTLP_ENDPOINT", endpoint)], &Flags::default());
        let wanted =
            "otlp_endpoint (environment variable MANDATE_OTLP_ENDPOINT): must be an http or https URL";
        assert!(message.starts_with(wanted) && !message.contains("u:p"), "{message}");
    }
    for ratio in ["1.5", "-0.1"] {
        let message = refused("", &[("MANDATE_OTLP_SAMPLING_RATIO", ratio)], &Flags::default());
        let wanted = format!(
            "otlp_sampling_ratio (environment variable MANDATE_OTLP_SAMPLING_RATIO): must be between 0 and 1; got `{ratio}`"
        );
        assert_eq!(message, wanted);
    }
}
