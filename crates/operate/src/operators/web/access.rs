//! Authenticates visitors. Without a token file, every visitor may see the page. Otherwise a
//! visitor sends the file's token as a bearer token, or logs in with the token and gets a session
//! cookie. Changing the token ends all sessions.

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};
use tokio::time::timeout;
use tracing::warn;

use super::super::render::short;
use super::guesses::Guesses;
use super::page::nonce;
use leasehold_clock::boot_now;
use leasehold_config::{Secret, unreadable};
use leasehold_core::election::BootTime;
use leasehold_host::bounded_file::open_without_waiting;

const TOKEN_BYTES_MAX: u64 = 4 * 1024;
/// Maximum number of sessions. A further session ends the oldest session.
const SESSIONS_MAX: usize = 256;
/// Lifetime of a session: a working day.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Timeout for reading the file; shorter than the page's timeout for an event stream.
const READ_MAX: Duration = Duration::from_secs(3);
const PERMISSIONS_OF_OTHERS: u32 = 0o007;

#[derive(Debug)]
pub(super) struct VisitorAccess {
    file: Option<TokenFile>,
    sessions: Mutex<VecDeque<VisitorSession>>,
    cookie: String,
    guesses: Guesses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The token is missing or wrong, or the token file is unusable.
    Wrong,
    /// Too many wrong tokens came from the visitor's address.
    Busy,
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// The mutex is locked while the file is read, so that a hanging file system blocks only one
    /// thread.
    newest: Arc<tokio::sync::Mutex<Option<StoredToken>>>,
}

#[derive(Debug)]
struct StoredToken {
    token: Secret,
    state: FileState,
}

type FileState = (u64, u64, i64, i64);

#[derive(Debug)]
struct VisitorSession {
    id: Secret,
    token: Secret,
    until: BootTime,
}

impl VisitorAccess {
    /// Reads the token file, if configured. The cookie's name contains the port, because browsers
    /// share cookies between all ports of a host.
    pub(super) async fn new(file: Option<PathBuf>, port: u16) -> Result<Self, String> {
        let file = file.map(|path| TokenFile {
            path,
            newest: Arc::default(),
        });
        if let Some(file) = &file {
            file.token().await?;
        }
        Ok(Self {
            file,
            sessions: Mutex::default(),
            cookie: format!("leasehold_{port}"),
            guesses: Guesses::default(),
        })
    }

    pub(super) fn needs_token(&self) -> bool {
        self.file.is_some()
    }

    pub(super) async fn permit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Refused> {
        let Some(token) = self.token().await? else {
            return Ok(());
        };
        match bearer_token(headers) {
            Some(given) => self.guesses.check(peer, || is_secret(given, &token)).await,
            None if self.has_session(headers, &token) => Ok(()),
            None => Err(Refused::Wrong),
        }
    }

    /// Returns false once the token of a permitted request has been replaced, or its session has
    /// ended. This check is not rate-limited, because it cannot be used to guess tokens.
    pub(super) async fn still_permits(&self, headers: &HeaderMap) -> bool {
        match (self.token().await, bearer_token(headers)) {
            (Err(_), _) => false,
            (Ok(None), _) => true,
            (Ok(Some(token)), Some(given)) => is_secret(given, &token),
            (Ok(Some(token)), None) => self.has_session(headers, &token),
        }
    }

    fn has_session(&self, headers: &HeaderMap, token: &Secret) -> bool {
        let Some(id) = self.session_id(headers) else {
            return false;
        };
        let now = boot_now();
        locked(&self.sessions).iter().any(|session| {
            let is_valid = is_secret(token.expose().as_bytes(), &session.token);
            is_secret(id, &session.id) && session.until > now && is_valid
        })
    }

    pub(super) async fn log_in(
        &self,
        given: &str,
        peer: IpAddr,
    ) -> Result<Option<HeaderValue>, Refused> {
        let token = self.token().await?.ok_or(Refused::Wrong)?;
        let is_right = || is_secret(given.as_bytes(), &token);
        self.guesses.check(peer, is_right).await?;
        let id = nonce();
        let cookie = self.set_cookie(&id, SESSION_TIME);
        let mut sessions = locked(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back(VisitorSession {
            id: Secret::new(id),
            token,
            until: boot_now() + SESSION_TIME,
        });
        Ok(cookie)
    }

    /// Ends the session of a request, and returns a cookie that clears the session in the browser.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let id = self.session_id(headers).unwrap_or_default();
        locked(&self.sessions).retain(|session| !is_secret(id, &session.id));
        self.set_cookie("", Duration::ZERO)
    }

    /// Returns `None` if visitors need no token. If the file is unusable, all visitors are refused.
    async fn token(&self) -> Result<Option<Secret>, Refused> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        file.token().await.map(Some).map_err(|error| {
            warn!(%error, "visitors' token unusable, refusing all visitors");
            Refused::Wrong
        })
    }

    fn session_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies.flat_map(|cookies| cookies.as_bytes().split(|byte| *byte == b';'));
        pairs.find_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(self.cookie.as_bytes())?;
            value.strip_prefix(b"=")
        })
    }

    fn set_cookie(&self, id: &str, time: Duration) -> Option<HeaderValue> {
        let cookie = format!(
            "{}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict",
            self.cookie,
            time.as_secs()
        );
        HeaderValue::from_str(&cookie).ok()
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?;
    value.as_bytes().strip_prefix(b"Bearer ")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TokenFile {
    /// Returns the token. A changed file is read on another thread, because a hanging file system
    /// would block the event loop.
    async fn token(&self) -> Result<Secret, String> {
        let (path, newest) = (self.path.clone(), Arc::clone(&self.newest));
        let newest = async {
            let mut known = newest.lock_owned().await;
            #[allow(clippy::disallowed_methods, reason = "the task only reads the file")]
            let read = tokio::task::spawn_blocking(move || refreshed(&path, &mut known));
            read.await
        };
        let token = match timeout(READ_MAX, newest).await {
            Ok(Ok(token)) => token,
            // The file system hangs, or the process is exiting.
            Ok(Err(_)) | Err(_) => {
                let limit = short(READ_MAX);
                Err(format!("its file system did not answer within {limit}"))
            }
        };
        token.map_err(|why| format!("--token-file {}: {why}", self.path.display()))
    }
}

fn state(found: &fs::Metadata) -> FileState {
    let changed = (found.ctime(), found.ctime_nsec());
    (found.ino(), found.size(), changed.0, changed.1)
}

/// Returns the file's token. Reads the file only if its state has changed.
fn refreshed(path: &Path, known: &mut Option<StoredToken>) -> Result<Secret, String> {
    let found = fs::metadata(path).ok();
    match known {
        Some(known) if found.is_some_and(|found| known.state == state(&found)) => {
            Ok(known.token.clone())
        }
        _ => Ok(known.insert(read(path)?).token.clone()),
    }
}

fn read(path: &Path) -> Result<StoredToken, String> {
    let creation = " with a token for visitors";
    let failed = |error: io::Error| unreadable(&error, creation, "--token-file");
    let file = open_without_waiting(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.mode() & PERMISSIONS_OF_OTHERS != 0 {
        return Err("other users may access it: chmod o= it".to_owned());
    }
    if !found.is_file() || found.len() > TOKEN_BYTES_MAX {
        return Err(format!(
            "expected a file of at most {TOKEN_BYTES_MAX} bytes"
        ));
    }
    let mut text = String::new();
    let mut file = file.take(TOKEN_BYTES_MAX);
    file.read_to_string(&mut text).map_err(failed)?;
    match text.trim() {
        "" => Err("it is empty; write a token for visitors into it".to_owned()),
        token => Ok(StoredToken {
            token: Secret::new(token),
            state: state(&found),
        }),
    }
}

fn is_secret(given: &[u8], secret: &Secret) -> bool {
    is_same(given, secret.expose().as_bytes())
}

/// Compares two secrets in constant time.
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |found, (a, b)| found | (a ^ b));
    black_box(differences) == 0 && a.len() == b.len()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Returns true if a new request is permitted, and checks that `still_permits` agrees.
    async fn permits(access: &VisitorAccess, headers: &HeaderMap) -> bool {
        let permitted = access.permit(headers, PEER).await.is_ok();
        assert_eq!(access.still_permits(headers).await, permitted);
        permitted
    }

    fn file(directory: &Path, token: &str, mode: u32) -> PathBuf {
        let path = directory.join("token");
        fs::write(&path, token).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        path
    }

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a value");
        HeaderMap::from_iter([(name, value)])
    }

    #[tokio::test]
    async fn a_token_that_others_can_read_or_that_is_missing_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        let path = |token, mode| file(directory.path(), token, mode);
        for (path, why) in [
            (missing, "there is no such file; create it"),
            (path(" \n", 0o600), "it is empty"),
        ] {
            let error = VisitorAccess::new(Some(path), 1)
                .await
                .expect_err("refused")
                .to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = VisitorAccess::new(Some(path("x", 0o604)), 1)
            .await
            .expect_err("refused");
        assert!(error.to_string().contains("chmod o="), "{error}");
        assert!(VisitorAccess::new(Some(path("x", 0o640)), 1).await.is_ok());
    }

    #[tokio::test]
    async fn a_session_ends_with_the_token() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = file(directory.path(), "first\n", 0o600);
        let access = VisitorAccess::new(Some(path), 9403).await.expect("usable");
        let bearer = |token: &str| headers(header::AUTHORIZATION, &format!("Bearer {token}"));
        assert!(permits(&access, &bearer("first")).await);
        assert!(
            !permits(&access, &bearer("firs")).await && !permits(&access, &HeaderMap::new()).await
        );
        assert_eq!(access.log_in("wrong", PEER).await, Err(Refused::Wrong));
        let cookie = access.log_in("first", PEER).await.expect("right");
        let cookie = cookie.expect("a cookie");
        let cookie = cookie.to_str().expect("a text");
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let (pair, _) = cookie.split_once(';').expect("attributes");
        let sent = headers(header::COOKIE, &format!("other=1; {pair}"));
        assert!(permits(&access, &sent).await);
        let shown = format!("{access:?}");
        assert!(shown.contains("TokenFile"), "{shown}");
        let (_, id) = pair.split_once('=').expect("a value");
        assert!(!shown.contains("first") && !shown.contains(id), "{shown}");
        file(directory.path(), "second", 0o600);
        assert!(!permits(&access, &sent).await, "the token was replaced");
        assert!(permits(&access, &bearer("second")).await);
        file(directory.path(), "third", 0o644);
        assert!(
            !permits(&access, &bearer("second")).await && !permits(&access, &bearer("third")).await
        );
    }

    #[tokio::test]
    async fn a_session_ends_when_the_visitor_leaves() {
        let directory = tempfile::tempdir().expect("a directory");
        let access = VisitorAccess::new(Some(file(directory.path(), "t", 0o600)), 1)
            .await
            .expect("usable");
        let cookie = access.log_in("t", PEER).await.expect("right");
        let cookie = cookie.expect("a cookie");
        let (pair, _) = cookie
            .to_str()
            .expect("a text")
            .split_once(';')
            .expect("attributes");
        let sent = headers(header::COOKIE, pair);
        assert!(permits(&access, &sent).await);
        access.log_out(&sent);
        assert!(!permits(&access, &sent).await);
    }
}
