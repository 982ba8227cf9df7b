//! Which URLs webhooks may have, and every known spelling of an address that is not public.

use super::*;

const DEVELOPERS: EgressPolicy = EgressPolicy { loopback: true, networks: Vec::new() };

fn refusal(text: &str, egress: &EgressPolicy) -> Option<String> {
    parse(text, egress).err().map(|e| e.to_string())
}

#[test]
fn an_https_url_is_taken_and_shown_as_it_will_be_used() {
    for (text, shown) in [
        ("https://hooks.example/in?k=v", "https://hooks.example/in?k=v"),
        ("https://Hooks.Example:443", "https://hooks.example/"),
        ("https://hooks.example:8443/a/../b", "https://hooks.example:8443/b"),
        ("https://93.184.216.34/", "https://93.184.216.34/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ] {
        assert_eq!(parse(text, &EgressPolicy::PUBLIC).as_ref().map(Url::as_str), Ok(shown), "{text}");
    }
}

#[test]
fn what_is_not_plainly_an_https_url_is_refused() {
    for (text, problem) in [
        ("", "url must be an absolute https URL: "),
        ("hooks.example/in", "url must be an absolute https URL: "),
        ("https://", "url must be an absolute https URL: "),
        ("https://[::1", "url must be an absolute https URL: "),
        ("mailto:a@b.example", "url must be an https URL with a host"),
        ("http://hooks.example/", "url must be an https URL"),
        ("ftp://hooks.example/", "url must be an https URL"),
        ("https://user@hooks.example/", "url must not hold a user name or a password"),
        ("https://@hooks.example/", "url must not hold a user name or a password"),
        ("https://:s3cret@hooks.example/", "url must not hold a user name or a password"),
        ("https://hooks.example/#part", "url must not hold a fragment"),
        ("https://hooks.example/#", "url must not hold a fragment"),
        (" https://hooks.example/", "url must be a URL that needs no repair: "),
        ("https://hooks.exa\nmple/", "url must be a URL that needs no repair: "),
        (r"https:\\hooks.example\", "url must be a URL that needs no repair: "),
        ("https:hooks.example", "url must be a URL that needs no repair: "),
        ("https://hooks.example/a b", "url must be a URL that needs no repair: "),
        ("https://hooks.example:0/in", "url must have a port from 1 to 65535"),
        ("https://8.8.8.8:00", "url must have a port from 1 to 65535"),
        ("https://hooks.example:65536/", "url must be an absolute https URL: "),
    ] {
        let refused = refusal(text, &EgressPolicy::PUBLIC).unwrap();
        assert!(refused.starts_with(problem), "{text}: {refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    let long = |length: usize| format!("https://h.example/{}", "x".repeat(length - 18));
    assert_eq!(refusal(&long(MAX_URL_CHARS), &EgressPolicy::PUBLIC), None);
    let too_long = "url must be at most 2048 characters long";
    assert_eq!(refusal(&long(MAX_URL_CHARS + 1), &EgressPolicy::PUBLIC).as_deref(), Some(too_long));
    let growing = format!("https://h.example/{}", "ü".repeat(400));
    assert_eq!(refusal(&growing, &EgressPolicy::PUBLIC).as_deref(), Some(too_long), "six characters each");
}

#[test]
fn a_host_that_would_have_to_be_normalised_is_refused() {
    for host in [
        "%68ooks.example",
        "hooks%2Eexample",
        "hooks.%65xample",
        "8%2e8.8.8",
        "%38.8.8.8",
        "\u{ff48}ooks.example",
        "hooks\u{3002}example",
        "hooks\u{ff0e}example",
        "hooks.e\u{ad}xample",
        "\u{24d7}ooks.example",
        "\u{ff18}.8.8.8",
        "8\u{ff0e}8.8.8",
        "bu\u{308}cher.example",
        "134744072",
        "0x08080808",
        "8.8.2056",
        "010.8.8.8",
    ] {
        for port in ["", ":8443"] {
            let refused = refusal(&format!("https://{host}{port}/in"), &EgressPolicy::PUBLIC).unwrap();
            let ours = refused.starts_with("url must have its host in the form in which it is looked up");
            assert!(
                ours || refused.starts_with("url must be a URL that needs no repair"),
                "{host}: {refused}"
            );
        }
    }
    for host in [
        "HOOKS.example",
        "b\u{fc}cher.example",
        "B\u{dc}CHER.example",
        "xn--bcher-kva.example",
        "hooks.example.",
        "8.8.8.8",
    ] {
        assert_eq!(refusal(&format!("https://{host}:443/in"), &EgressPolicy::PUBLIC), None, "{host}");
    }
    assert_eq!(refusal("https://[2606:4700:0:0::1111]:8443/", &EgressPolicy::PUBLIC), None);
}

/// Hosts on this machine or in a network that is not public, in the spellings that are known to have passed
/// filters.
pub(crate) const NOT_PUBLIC: &[&str] = &[
    // Every special-purpose network of IPv4, at both ends.
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.255.255",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    // Short, decimal, octal and hexadecimal forms, alone and mixed; leading zeros; a full stop at the end.
    "0",
    "127.1",
    "127.0.1",
    "10.1",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0x0.0.01",
    "00000177.0.0.1",
    "127.0.0.1.",
    "2852039166",
    "2822734096",
    "0xa83f8110",
    "0xa9fea9fe",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "169.16689662",
    "192.0xa80001",
    "3232235521",
    // Digits, full stops and letters of other scripts, and characters that are percent-encoded.
    "\u{2460}\u{2461}\u{2466}.0.0.1",
    "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
    "127\u{3002}0\u{3002}0\u{3002}1",
    "127\u{ff0e}0\u{ff0e}0\u{ff0e}1",
    "%31%32%37.0.0.1",
    "\u{24db}ocalhost",
    "loc%61lhost",
    // Names of this machine.
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "a.b.localhost.",
    // IPv6: unspecified, loopback, and written at length.
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    // IPv4 in IPv6: compatible, mapped, translated (SIIT, NAT64 and its local-use prefix), 6to4, Teredo, ISATAP.
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[::169.254.169.254]",
    "[::8.8.8.8]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:168.63.129.16]",
    "[::ffff:8.8.8.8]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::1]",
    "[64:ff9b:1:7f00:0:100::]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[fe80::5efe:127.0.0.1]",
    // The other special-purpose networks of IPv6, and unassigned addresses.
    "[100::1]",
    "[100:0:0:1::1]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[2001:20::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[4000::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd12:3456::1]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    "[feff::1]",
    "[ff02::1]",
    "[ff0e::1]",
];

/// Texts that no reader accepts as a host.
const NO_HOSTS: &[&str] = &[
    "[fe80::1%25lo]",
    "[::1%lo]",
    "[::1",
    "[::ffff:127.1]",
    "[v1.127]",
    "256.0.0.1",
    "127.0.0.1.1",
    "0x100000000",
    "4294967296",
    "09.0.0.1",
    "127.0.0.0x",
    "127.0.0.1%00.example",
    "127.0.0.1%2f.example",
];

#[test]
fn an_address_that_is_not_public_is_refused_in_every_spelling() {
    for host in NOT_PUBLIC {
        for port in ["", ":8443"] {
            let refused = refusal(&format!("https://{host}{port}/"), &EgressPolicy::PUBLIC).unwrap();
            assert!(refused.starts_with("url must "), "{host}: {refused}");
        }
    }
    for host in NO_HOSTS {
        assert!(refusal(&format!("https://{host}/"), &EgressPolicy::PUBLIC).is_some(), "{host}");
    }
    for host in [
        "8.8.8.8",
        "100.63.255.255",
        "168.63.129.15",
        "168.63.129.17",
        "172.32.0.1",
        "192.0.1.1",
        "[2001:4860:4860::8888]",
        "[2001:200::1]",
        "localhost.example",
        "127.0.0.1.example",
        "0x7f.example",
    ] {
        assert_eq!(refusal(&format!("https://{host}/"), &EgressPolicy::PUBLIC), None, "{host}");
    }
}

#[test]
fn networks_that_the_operator_names_are_reached_and_no_more() {
    let networks = ["10.20.0.0/16", "fd00:20::/32"].map(|network| network.parse().unwrap());
    let egress = EgressPolicy { loopback: false, networks: networks.to_vec() };
    for host in ["10.20.0.1", "10.20.255.255", "[fd00:20::1]", "hooks.example"] {
        assert_eq!(refusal(&format!("https://{host}/"), &egress), None, "{host}");
        assert_eq!(refusal(&format!("http://{host}/"), &egress).as_deref(), Some("url must be an https URL"));
    }
    assert!(refusal("https://0xa.0x14.1/", &egress).unwrap().contains("looked up"));
    for host in
        ["10.21.0.1", "127.0.0.1", "localhost", "[fd00:21::1]", "[::ffff:10.20.0.1]", "[64:ff9b::a14:1]"]
    {
        let refused = refusal(&format!("https://{host}/"), &egress).unwrap();
        assert!(refused.starts_with("url must have a host that is public"), "{host}: {refused}");
    }
    let here = EgressPolicy { loopback: false, networks: vec!["127.0.0.0/8".parse().unwrap()] };
    assert_eq!(refusal("https://localhost/", &here), None);
    assert_eq!(refusal("http://localhost/", &here).as_deref(), Some("url must be an https URL"));
}

#[test]
fn a_name_of_this_machine_never_means_another() {
    let egress = EgressPolicy { loopback: true, networks: Vec::new() };
    let public = "8.8.8.8".parse().unwrap();
    assert!(egress.allows_for("hooks.example", public) && !egress.allows_for("a.localhost", public));
    assert!(egress.allows_for("a.localhost", "::1".parse().unwrap()));
}

#[test]
fn developers_reach_this_machine_and_no_other_private_one() {
    for host in ["127.0.0.1:9000", "127.8.8.8", "[::1]:9000", "localhost:9000", "a.localhost"] {
        for scheme in ["http", "https"] {
            assert_eq!(refusal(&format!("{scheme}://{host}/"), &DEVELOPERS), None, "{host}");
        }
    }
    for url in ["http://hooks.example/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "ftp://localhost/"]
    {
        assert_eq!(refusal(url, &DEVELOPERS).as_deref(), Some("url must be an https URL"), "{url}");
    }
    assert!(refusal("https://10.0.0.1/", &DEVELOPERS).unwrap().contains("host that is public"));
}
