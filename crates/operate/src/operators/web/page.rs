//! Serves the page and the login form. The script inserts all documents as text, not as HTML.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use leasehold_core::election::Randomness;
use leasehold_http::{Answer, HTML, respond};
use leasehold_mongodb::randomness::KernelRandomness;

const PAGE: &str = include_str!("page.html");
const LOGIN: &str = include_str!("login.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 4] = [
    include_str!("text.js"),
    include_str!("details.js"),
    include_str!("row.js"),
    include_str!("page.js"),
];

/// Returns the page. The page sends the secret with each action; without a secret, it is read-only.
pub(super) fn page(secret: Option<&str>, has_login: bool) -> Answer {
    let page = PAGE
        .replace("{{secret}}", secret.unwrap_or_default())
        .replace("{{login}}", if has_login { "" } else { "hidden" });
    answer(StatusCode::OK, &page)
}

pub(super) fn login(code: StatusCode, message: &'static str) -> Answer {
    answer(code, &LOGIN.replace("{{message}}", message))
}

pub(super) fn nonce() -> String {
    format!("{:032x}", KernelRandomness.bits())
}

/// Answers with a page whose Content-Security-Policy permits styles and scripts only if they have
/// the answer's nonce.
fn answer(code: StatusCode, page: &str) -> Answer {
    let nonce = nonce();
    let page = page
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPT.concat());
    let mut answer = respond(code, HTML, page);
    let headers = answer.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy(&nonce)) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // If the policy were no-referrer, browsers would send the form's origin as `null`.
    let referrer = HeaderValue::from_static("same-origin");
    headers.insert(header::REFERRER_POLICY, referrer);
    answer
}

fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_answers_style_and_script_are_allowed() {
        let nonces = [nonce(), nonce()];
        assert_ne!(nonces[0], nonces[1]);
        for nonce in &nonces {
            assert_eq!(nonce.len(), 32);
            assert!(policy(nonce).contains(&format!("script-src 'nonce-{nonce}';")));
        }
    }
}
