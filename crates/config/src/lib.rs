//! The configuration: one table of keys, four layers, and all errors reported together.
//!
//! ```
//! use leasehold_config::{Sources, find};
//!
//! let flag = |path, value: &str| (find(path).expect("a key"), value.to_owned());
//! let sources = Sources {
//!     flags: vec![flag("lease.name", "orders"), flag("mongodb.uri", "mongodb://localhost")],
//!     ..Sources::default()
//! };
//! let config = sources.load().config()?;
//! assert_eq!(config.lease.name.as_str(), "orders");
//! # Ok::<(), leasehold_config::ConfigError>(())
//! ```

mod choice;
mod error;
mod load;
mod profile;
mod rendered_for;
mod schema;
mod secret;
mod sections;
mod validate;
mod value;
mod variables;
mod yaml;

pub use choice::{
    Choice, KubernetesEnabled, LogFormat, OnDaemonRestart, OnExit, Prefer, Profile, ReadyWhen,
    SignalNumber,
};
pub use error::{ConfigError, Origin, PROBLEMS_SHOWN_MAX, Problem};
pub use leasehold_supervisor::{HealthCheck, HealthConfig, HooksConfig};
pub use load::{Loaded, Setting, Sources};
pub use rendered_for::{Placement, RENDER_AGAIN, RenderedFor};
pub use schema::{
    DEFAULT_TOML, KEYS, Key, Reload, ValueType, find, is_section, near, nearest, suggest,
    suggest_key,
};
pub use secret::{MASK, Secret, UriSource, looks_secret, shown, shown_path, unreadable};
pub use sections::{
    Config, HttpConfig, IdentityConfig, KubernetesConfig, LeaseConfig, LockConfig, LogConfig,
    MongoConfig, StatusConfig, WorkloadConfig,
};
pub use value::{duration, listen};
pub use variables::IgnoredVariable;
