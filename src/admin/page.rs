//! The HTML page for humans. It loads nothing from elsewhere; its script follows `/events`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::election::{Role, Status};
use crate::publish::render::{ClockPair, Identification, authority_at, leader_name_at};
use crate::publish::{StoreError, StoreInfo};

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<noscript><meta http-equiv="refresh" content="2"></noscript>
"#;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --dim: #777; --tone: #777; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; font-weight: 600; margin: 0; }
.role { font-size: 2.4rem; font-weight: 700; margin: 0 0 1.5rem; color: var(--tone); }
.leader { --tone: #16833c; } .follower { --tone: #2b6cb0; }
.paused, .stopping { --tone: #b26a00; } .unknown { --tone: #b3261e; }
dl { display: grid; grid-template-columns: max-content 1fr; margin: 0; border-top: 1px solid var(--line); }
dt, dd { padding: .45rem 0; border-bottom: 1px solid var(--line); margin: 0; }
dl div { display: contents; } [hidden] { display: none !important; }
dt { color: var(--dim); padding-right: 2rem; }
dd { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.old { opacity: .6; } footer { color: var(--dim); margin: 1.5rem 0; min-height: 1.5em; } footer p { display: inline; }
nav a { margin-right: 1rem; color: inherit; }
@media (prefers-color-scheme: dark) {
  .leader { --tone: #5fd38a; } .follower { --tone: #7db5ee; }
  .paused, .stopping { --tone: #f0b35a; } .unknown { --tone: #f2928c; } :root { --dim: #aaa; }
}
";

const FOOT: &str = r#"</main>
<footer><p id="connection" role="status"></p> <p id="contact"></p></footer>
<nav><a href="/status">status</a><a href="/leader">leader</a><a href="/metrics">metrics</a><a href="/readyz">ready</a><a href="/livez">live</a></nav>
</body></html>
"#;

const SCRIPT: &str = include_str!("page.js");

/// Returns true if an Accept header prefers HTML to JSON. A bare `*/*` does not, because programs
/// send it and expect JSON.
pub(super) fn preferred(accept: &str) -> bool {
    let html = quality(accept, "text", "html");
    html > 0.0 && html > quality(accept, "application", "json")
}

/// Renders the page about `status` at `clocks`.
pub(super) fn page(
    status: &Status,
    who: &Identification,
    (store, error): (Option<&StoreInfo>, Option<&StoreError>),
    clocks: ClockPair,
    nonce: &str,
) -> String {
    let now = clocks.boot;
    let authority = authority_at(status, now);
    let truth = status.at(now);
    let role = truth.role;
    let lease = escaped(who.lease.as_str());
    let holder = leader_name_at(status, &who.identity, now);
    let token = authority.map_or_else(|| "none".to_owned(), |a| a.token.to_string());
    let left = authority.map_or_else(
        || "–".to_owned(),
        |a| format!("{:.1} s", a.valid_until.since(now).as_secs_f64()),
    );
    let reason = truth.reason.map_or("–", |r| r.as_str());
    let store = store.map_or_else(
        || "not reached yet".to_owned(),
        |s| {
            let kind = s.describe();
            format!("{kind}, {}.{}", s.database, s.collection)
        },
    );
    // While the store is unreachable, neither a holder nor a free lease is known.
    let nobody = match role {
        Role::Unknown => "not known",
        Role::Leader | Role::Follower | Role::Paused | Role::Stopping => "nobody",
    };
    let failure = error.map(|error| {
        let since = whole_seconds(now.since(error.since));
        format!("{} (for {since})", error.message)
    });
    let rows = [
        ("Holder", "holder", holder.unwrap_or(nobody).to_owned()),
        ("Token", "token", token),
        ("Time left", "left", left),
        (
            "Since",
            "since",
            format!(
                "{} ({} ago)",
                clocks.date(truth.since),
                whole_seconds(now.since(truth.since))
            ),
        ),
        ("Reason", "reason", reason.to_owned()),
        ("This candidate", "candidate", who.identity.to_string()),
        ("Store", "store", store),
    ];
    let mut page = String::with_capacity(8192);
    page.push_str(HEAD);
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<style nonce=\"{nonce}\">{STYLE}</style>\n<script nonce=\"{nonce}\" type=\"module\">\n{SCRIPT}</script>\n\
         <title>{lease}: {role}</title></head><body class=\"{role}\">\n<main id=\"state\">\n\
         <h1>{lease}</h1>\n<p class=\"role\" id=\"role\" role=\"status\">{}</p>\n<dl>\n",
        headline(role)
    );
    for (name, id, value) in rows {
        let value = escaped(&value);
        let _ = writeln!(page, "<dt>{name}</dt><dd id=\"{id}\">{value}</dd>");
    }
    let _ = writeln!(
        page,
        "<div id=\"failure\"{}><dt>MongoDB error</dt><dd id=\"error\">{}</dd></div>\n</dl>",
        if failure.is_some() { "" } else { " hidden" },
        escaped(failure.as_deref().unwrap_or_default())
    );
    page.push_str(FOOT);
    page
}

fn headline(role: Role) -> &'static str {
    match role {
        Role::Leader => "Leader",
        Role::Follower => "Follower",
        Role::Paused => "Paused",
        Role::Stopping => "Stepping down",
        Role::Unknown => "Waiting for MongoDB",
    }
}

fn whole_seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns the quality value of `kind/subkind`, taken from the most specific range that matches.
fn quality(accept: &str, kind: &str, subkind: &str) -> f32 {
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (k, s) = parts.next()?.split_once('/')?;
        let specificity = match (
            k.eq_ignore_ascii_case(kind),
            s.eq_ignore_ascii_case(subkind),
        ) {
            (true, true) => 2,
            (true, false) if s == "*" => 1,
            (false, _) if k == "*" && s == "*" => 0,
            _ => return None,
        };
        let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
        let q = q.map_or(1.0, |q| q.parse().unwrap_or(0.0));
        Some((specificity, q))
    });
    ranges
        .max_by_key(|(specificity, _)| *specificity)
        .map_or(0.0, |(_, q)| q)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;
    use crate::election::{HolderView, Identity};
    use crate::publish::fixture::{self, token, who};

    fn at(seconds: u64) -> ClockPair {
        ClockPair {
            boot: fixture::at(seconds),
            wall: UNIX_EPOCH,
            time_namespace: None,
        }
    }

    #[test]
    fn browsers_get_the_page_and_programs_get_json() {
        for html in [
            "text/html",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/*, application/json;q=0.5",
            "TEXT/HTML;level=1",
        ] {
            assert!(preferred(html), "{html}");
        }
        for other in [
            "",
            "*/*",
            "application/json",
            "application/json, text/html",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/html;q=nonsense",
            "text/plain",
            "html",
        ] {
            assert!(!preferred(other), "{other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_header_without_html_prefers_json(
            accept in prop_oneof!["\\PC{0,40}", "(text/|html|\\*|,|;| |q=|application/json|[0-9.]{1,4}|NaN|inf|-1){0,9}"],
        ) {
            let accept = accept.to_ascii_lowercase();
            let names_text = accept.contains("text/html") || accept.contains("text/*");
            prop_assert!(names_text || !preferred(&accept), "{}", accept);
        }
    }

    #[test]
    fn the_page_escapes_names_and_never_names_an_expired_holder() {
        let status = Status {
            holder: Some(HolderView {
                identity: Identity::new("<b>&\"x'").unwrap(),
                token: token(8),
                until: at(5).boot,
            }),
            ..fixture::status(Role::Follower)
        };
        let text = page(&status, &who("me"), (None, None), at(1), "n");
        let row = "<dt>Holder</dt><dd id=\"holder\">&lt;b&gt;&amp;&quot;x&#39;</dd>";
        assert!(text.contains(row), "{text}");
        assert!(text.contains(">Follower</p>"), "{text}");
        assert!(!text.contains("http://") && !text.contains("https://"));
        assert!(text.contains("<div id=\"failure\" hidden>"), "{text}");
        let text = page(&status, &who("me"), (None, None), at(5), "n");
        assert!(
            text.contains("<dt>Holder</dt><dd id=\"holder\">nobody</dd>"),
            "{text}"
        );
    }

    #[test]
    fn the_script_knows_each_role_and_each_row() {
        let text = page(
            &fixture::status(Role::Follower),
            &who("me"),
            (None, None),
            at(1),
            "n",
        );
        for role in Role::ALL {
            let line = format!("  {role}: \"{}\",\n", headline(role));
            assert!(SCRIPT.contains(&line), "{line}");
        }
        for call in ["show(\"", "getElementById(\""] {
            for rest in SCRIPT.split(call).skip(1) {
                let (id, _) = rest.split_once('"').expect("a closing quote");
                assert!(text.contains(&format!(" id=\"{id}\"")), "{id}");
            }
        }
    }

    #[test]
    fn an_unread_store_is_not_shown_as_a_free_lease() {
        let status = fixture::status(Role::Unknown);
        let error = StoreError {
            message: "no primary: <x>".to_owned(),
            since: at(3).boot,
        };
        let text = page(&status, &who("me"), (None, Some(&error)), at(5), "n");
        assert!(
            text.contains("<dt>Holder</dt><dd id=\"holder\">not known</dd>"),
            "{text}"
        );
        let row = "<div id=\"failure\"><dt>MongoDB error</dt><dd id=\"error\">no primary: &lt;x&gt; (for 2s)</dd>";
        assert!(text.contains(row), "{text}");
    }
}
