//! On a server with a loopback address, checks which host each request names.

use std::net::IpAddr;

use hyper::Request;
use hyper::header;

use super::Client;

/// Returns true if a web page of another origin may have sent the request. A page can make its own
/// host name resolve to a loopback address (DNS rebinding), but the browser still sends this name.
pub fn is_misdirected<B>(request: &Request<B>, client: &Client) -> bool {
    client.local_names_only && !names_only_this_machine(request)
}

fn names_only_this_machine<B>(request: &Request<B>) -> bool {
    let target = request.uri().authority();
    let mut hosts = request.headers().get_all(header::HOST).iter();
    target.is_none_or(|target| is_local(target.as_str()))
        && hosts.all(|host| host.to_str().is_ok_and(is_local))
}

/// Returns true for a loopback address or `localhost`, with any port.
fn is_local(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_port || digits.len() == port.len() && !port.is_empty() {
        return false;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    name.bytes().all(is_legal) && (name == "localhost" || name.ends_with(".localhost"))
}

#[cfg(test)]
mod tests {
    use hyper::Uri;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_local_only_if_all_its_hosts_are() {
        for (target, hosts, is_ours) in [
            ("/", &[][..], true),
            ("/", &["localhost"], true),
            ("/", &["LOCALHOST.:80"], true),
            ("/", &["[::1]:9402"], true),
            ("/", &["127.9.9.9"], true),
            ("http://localhost/", &["a.localhost"], true),
            ("/", &["localhost", "evil.test"], false),
            ("/", &["evil.test", "localhost"], false),
            ("http://evil.test/", &["localhost"], false),
            ("/", &["localhost:80@evil.test"], false),
            ("/", &["[::1]evil.test"], false),
            ("/", &["[::1"], false),
            ("/", &["evil.test/.localhost"], false),
            ("/", &["::1"], false),
            ("/", &[""], false),
        ] {
            let mut request = Request::builder().uri(target);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            let request = request.body(()).expect("a request");
            assert_eq!(names_only_this_machine(&request), is_ours, "{request:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_url_parser_finds_equal_local_hosts(
            host in prop_oneof![
                "\\PC{0,20}",
                "(\\[?(localhost|127\\.0\\.0\\.1|::1|10\\.0\\.0\\.1)\\]?){0,2}[:@./?#\\[\\]0-9a-z]{0,9}(\\.localhost)?",
            ],
        ) {
            if is_local(&host) {
                let uri = format!("http://{host}/").parse::<Uri>();
                let found = uri.ok().and_then(|uri| uri.host().map(str::to_ascii_lowercase));
                let found = found.unwrap_or_default();
                let name = found.trim_matches(['[', ']']).trim_end_matches('.');
                let address = name.parse::<IpAddr>();
                prop_assert!(
                    name.ends_with("localhost") || address.is_ok_and(|it| it.to_canonical().is_loopback()),
                    "{:?} is {:?}", host, name
                );
            }
        }
    }
}
