//! The `Host` header of requests to a listener that only this machine reaches.

use std::net::IpAddr;

use hyper::Request;
use hyper::header::{self, HeaderValue};

use super::Client;

/// Returns true for a request that a web page from elsewhere may have sent: it can have its own
/// name resolved to a loopback address. Browsers always send the name that the page was loaded from.
pub(crate) fn is_misdirected<B>(request: &Request<B>, client: &Client) -> bool {
    let host = request.headers().get(header::HOST);
    client.local_names_only && !host.is_none_or(names_this_machine)
}

/// Returns true for a Host header with a loopback address or `localhost`, with any port.
fn names_this_machine(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let address = name.parse::<IpAddr>();
    address.is_ok_and(|address| address.to_canonical().is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
}
