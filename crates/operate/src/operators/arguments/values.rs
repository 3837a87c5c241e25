//! Values of the operators' flags.

use leasehold_cli::values::{expected, identity, whole};
use leasehold_core::election::{Identity, Token};

/// Maximum length of a reason, in bytes. The document stores the reasons of twenty actions.
const REASON_MAX: usize = 500;
/// Marks actions from the web page in the history.
pub(super) const FROM_PAGE: &str = " (web)";

pub(in crate::operators) fn reason(text: &str) -> Result<String, String> {
    let is_valid = (1..=REASON_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "expected 1 to {REASON_MAX} bytes without control characters, not {}",
            text.len()
        )
    })
}

pub(super) fn token(text: &str) -> Result<Token, String> {
    // The next acquisition needs a higher token.
    let number = whole(0, Token::MAX.get() - 1)(text)?;
    Token::new(number).ok_or_else(|| "expected a token".to_owned())
}

/// Parses the page's `--by`. The maximum length of the name leaves room for [`FROM_PAGE`].
pub(super) fn page_author(text: &str) -> Result<Identity, String> {
    let author = identity(text)?;
    match Identity::new(format!("{author}{FROM_PAGE}")) {
        Ok(_) => Ok(author),
        Err(error) => Err(format!("with \"{FROM_PAGE}\" {}", expected(error))),
    }
}

fn account() -> Option<String> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut accounts = accounts.lines().map(|line| line.split(':'));
    accounts.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)? == uid && !name.is_empty()).then(|| name.to_owned())
    })
}

pub(super) fn author(given: Option<&Identity>) -> Identity {
    if let Some(given) = given {
        return given.clone();
    }
    // A longer name, together with the host name, would exceed the maximum length of an identity.
    let is_plain =
        |user: &String| (1..=64).contains(&user.len()) && !user.chars().any(char::is_control);
    let mut users = ["USER", "LOGNAME"]
        .iter()
        .filter_map(|name| std::env::var(name).ok());
    let user = users.find(is_plain);
    let user = user.or_else(account);
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    Identity::new(format!("{user}@{host}"))
        .or_else(|_| Identity::new("unknown"))
        .expect("a plain word is a legal identity")
}
