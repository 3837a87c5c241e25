//! The page and the form to log in. The script inserts all documents as text.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use super::policy;
use leasehold_http::{Answer, HTML, respond};

const PAGE: &str = include_str!("page.html");
const LOGIN: &str = include_str!("login.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 3] = [
    include_str!("text.js"),
    include_str!("details.js"),
    include_str!("page.js"),
];

/// Returns the page. `secret` is the value that proves that an action comes from it; `None` if it is
/// read-only.
pub(super) fn page(secret: Option<&str>, has_login: bool) -> Answer {
    let page = PAGE
        .replace("{{secret}}", secret.unwrap_or_default())
        .replace("{{login}}", if has_login { "" } else { "hidden" });
    answer(StatusCode::OK, &page, "'self'")
}

/// Returns the form to log in, with a message.
pub(super) fn login(code: StatusCode, message: &'static str) -> Answer {
    answer(code, &LOGIN.replace("{{message}}", message), "'self'")
}

fn answer(code: StatusCode, page: &str, forms: &str) -> Answer {
    let nonce = policy::nonce();
    let page = page
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPT.concat());
    let mut answer = respond(code, HTML, page);
    policy::restrict(&mut answer, &nonce, forms);
    // The form's request would have no origin without a referrer.
    answer.headers_mut().insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    );
    answer
}
