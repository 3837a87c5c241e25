//! The content security policy of a page whose style and script are part of it.

use hyper::header::{self, HeaderValue};

use leasehold_core::election::Randomness;
use leasehold_http::Answer;
use leasehold_mongodb::randomness::KernelRandomness;

/// Returns a random value that marks the style and the script of one answer as its own.
pub(super) fn nonce() -> String {
    format!("{:032x}", KernelRandomness.bits())
}

/// Returns the content security policy of a page with this nonce.
fn policy(nonce: &str, forms: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
    )
}

/// Restricts a page to the style and script with this nonce. `forms` is where its forms may be
/// sent, as a source of the policy.
pub(super) fn restrict(answer: &mut Answer, nonce: &str, forms: &str) {
    if let Ok(policy) = HeaderValue::from_str(&policy(nonce, forms)) {
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
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
            assert!(policy(nonce, "'none'").contains(&format!("script-src 'nonce-{nonce}';")));
        }
    }
}
