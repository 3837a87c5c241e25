//! The options of connection strings, and what leasehold does with each.

use super::UriNotice;

/// Treatment of an option by leasehold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Treatment {
    /// The driver applies it.
    Applied,
    /// The driver applies it, which has this risk.
    AppliedWithRisk(&'static str),
    /// leasehold sets this instead, because the protocol or a key of the configuration requires it.
    Overridden(&'static str),
    /// It has no effect, for this reason.
    Ignored(&'static str),
    /// The connection string is refused; contains the reason and the remedy.
    Refused(&'static str),
}

/// The values that an applied option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepts {
    Text,
    /// A text that an application name may have.
    AppName,
    Flag,
    Number,
}

/// An option of connection strings.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UriOption {
    /// The name, in its usual spelling. Names are compared without case.
    pub name: &'static str,
    /// The treatment of the option.
    pub treatment: Treatment,
    /// Deprecated names.
    pub aliases: &'static [&'static str],
    /// Values that change nothing, so that they need neither a notice nor a refusal.
    harmless: &'static [&'static str],
    accepts: Accepts,
}

/// The longest application name that a server accepts, in bytes.
pub(crate) const APP_NAME_MAX: usize = 128;

const TIMEOUT: Treatment = Treatment::Overridden("mongodb.operation_timeout");
const PRIMARY: Treatment = Treatment::Overridden("reads from the primary");
const WRITES: Treatment = Treatment::Overridden("w: majority, j: true");
const NO_RETRIES: Treatment = Treatment::Overridden("no retries by the driver");
const POOL: Treatment = Treatment::Overridden("20");
const COMPRESSION: Treatment = Treatment::Ignored("connections are not compressed");
const REVOCATION: Treatment = Treatment::Ignored("the revocation of certificates is not checked");
const OTHERS: Treatment = Treatment::Ignored("it is an option of other drivers");
const UNVERIFIED: Treatment =
    Treatment::AppliedWithRisk("servers are not verified, so another machine can pose as MongoDB");
pub(super) const LOAD_BALANCED: &str = "behind a load balancer no change of the primary can be \
     seen: remove it, and name the members or the mongos";
const PROXY: Treatment = Treatment::Refused(
    "connections through a SOCKS5 proxy are not supported: remove it, and let the network route \
     them",
);

/// All options: those of the drivers' specification in alphabetical order, then those of single
/// drivers.
pub const OPTIONS: &[UriOption] = &[
    applied("appName", Accepts::AppName),
    applied("authMechanism", Accepts::Text),
    applied("authMechanismProperties", Accepts::Text),
    applied("authSource", Accepts::Text),
    option("compressors", COMPRESSION),
    option("connectTimeoutMS", TIMEOUT),
    applied("directConnection", Accepts::Flag),
    option("enableOverloadRetargeting", NO_RETRIES).harmless(&["false"]),
    option(
        "heartbeatFrequencyMS",
        Treatment::Overridden("mongodb.heartbeat"),
    ),
    option("journal", WRITES)
        .harmless(&["true"])
        .aliases(&["j"]),
    option("loadBalanced", Treatment::Refused(LOAD_BALANCED)).harmless(&["false"]),
    applied("localThresholdMS", Accepts::Number),
    option("maxAdaptiveRetries", NO_RETRIES).harmless(&["0"]),
    option("maxConnecting", POOL),
    applied("maxIdleTimeMS", Accepts::Number),
    option("maxPoolSize", POOL),
    option("maxStalenessSeconds", PRIMARY).harmless(&["-1"]),
    option(
        "minPoolSize",
        Treatment::Ignored("connections are opened when they are needed"),
    )
    .harmless(&["0"]),
    option("proxyHost", PROXY),
    option("proxyPassword", PROXY),
    option("proxyPort", PROXY),
    option("proxyUsername", PROXY),
    option(
        "readConcernLevel",
        Treatment::Overridden("majority or linearizable"),
    )
    .harmless(&["majority", "linearizable"]),
    option("readPreference", PRIMARY).harmless(&["primary"]),
    option("readPreferenceTags", PRIMARY),
    applied("replicaSet", Accepts::Text),
    option("retryReads", NO_RETRIES).harmless(&["false"]),
    option("retryWrites", NO_RETRIES).harmless(&["false"]),
    option(
        "serverMonitoringMode",
        Treatment::Overridden("stream, or poll for a lock"),
    ),
    option("serverSelectionTimeoutMS", TIMEOUT),
    option(
        "serverSelectionTryOnce",
        Treatment::Ignored("servers are selected until the timeout"),
    )
    .harmless(&["false"]),
    option("socketTimeoutMS", TIMEOUT),
    applied("srvMaxHosts", Accepts::Number),
    applied("srvServiceName", Accepts::Text),
    option("timeoutMS", TIMEOUT),
    applied("tls", Accepts::Flag).aliases(&["ssl"]),
    unverified("tlsAllowInvalidCertificates").aliases(&["sslAllowInvalidCertificates"]),
    option(
        "tlsAllowInvalidHostnames",
        Treatment::Refused(
            "host names are verified together with certificates: use a host name that the \
             certificate has, or tlsInsecure, which verifies neither",
        ),
    )
    .harmless(&["false"])
    .aliases(&["sslAllowInvalidHostnames"]),
    applied("tlsCAFile", Accepts::Text).aliases(&["sslCertificateAuthorityFile"]),
    applied("tlsCertificateKeyFile", Accepts::Text).aliases(&["sslClientCertificateKeyFile"]),
    option(
        "tlsCertificateKeyFilePassword",
        Treatment::Refused(
            "encrypted keys are not supported: decrypt it with openssl pkcs8 -topk8 -nocrypt",
        ),
    )
    .aliases(&["sslClientCertificateKeyPassword"]),
    option("tlsDisableCertificateRevocationCheck", REVOCATION).harmless(&["true"]),
    option("tlsDisableOCSPEndpointCheck", REVOCATION).harmless(&["true"]),
    unverified("tlsInsecure").aliases(&["sslInsecure"]),
    option(
        "uuidRepresentation",
        Treatment::Ignored("documents of leasehold contain no UUIDs"),
    ),
    option("w", WRITES).harmless(&["majority"]),
    option("waitQueueTimeoutMS", TIMEOUT),
    option("wTimeoutMS", TIMEOUT).aliases(&["wtimeout"]),
    option("zlibCompressionLevel", COMPRESSION),
    option("autoReconnect", OTHERS),
    option("canonicalizeHostname", OTHERS),
    option("connect", OTHERS),
    option("datetime_conversion", OTHERS),
    option("family", OTHERS),
    option("fsync", OTHERS),
    option("gssapiServiceName", OTHERS),
    option("guids", OTHERS),
    option("ipv6", OTHERS),
    option("keepAlive", OTHERS),
    option("maxLifeTimeMS", OTHERS),
    option("minHeartbeatFrequencyMS", OTHERS),
    option("monitorCommands", OTHERS),
    option("noDelay", OTHERS),
    option("poolSize", OTHERS),
    option("safe", OTHERS),
    option("slaveOk", OTHERS),
    option("socketCheckIntervalMS", OTHERS),
    option("streamType", OTHERS),
    option("tz_aware", OTHERS),
    option("unicode_decode_error_handler", OTHERS),
    option("useNewUrlParser", OTHERS),
    option("useUnifiedTopology", OTHERS),
    option("waitQueueMultiple", OTHERS),
    option("waitQueueSize", OTHERS),
];

const fn option(name: &'static str, treatment: Treatment) -> UriOption {
    UriOption {
        name,
        treatment,
        aliases: &[],
        harmless: &[],
        accepts: Accepts::Text,
    }
}

const fn applied(name: &'static str, accepts: Accepts) -> UriOption {
    UriOption {
        accepts,
        ..option(name, Treatment::Applied)
    }
}

const fn unverified(name: &'static str) -> UriOption {
    UriOption {
        accepts: Accepts::Flag,
        harmless: &["false"],
        ..option(name, UNVERIFIED)
    }
}

impl UriOption {
    const fn harmless(self, harmless: &'static [&'static str]) -> Self {
        Self { harmless, ..self }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Returns the option of a name or an alias.
    pub fn find(name: &str) -> Option<&'static Self> {
        let is_name = |known: &str| known.eq_ignore_ascii_case(name);
        let mut options = OPTIONS.iter();
        options.find(|option| is_name(option.name) || option.aliases.iter().any(|a| is_name(a)))
    }

    /// Returns the name that is most similar to an unknown one.
    pub(super) fn nearest(name: &str) -> Option<&'static str> {
        /// Below this, a name is not a misspelling.
        const SIMILARITY_MIN: f64 = 0.84;
        let name = name.to_ascii_lowercase();
        let names = OPTIONS.iter().flat_map(|option| {
            let aliases = option.aliases.iter().copied();
            [option.name].into_iter().chain(aliases)
        });
        let rated = names.map(|known| {
            let similarity = strsim::jaro_winkler(&known.to_ascii_lowercase(), &name);
            (similarity, known)
        });
        let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
            .map(|(_, known)| known)
    }

    /// Returns true if an empty value is a mistake: without the value, other servers are reached or
    /// trusted, or another user logs in.
    pub(super) fn requires_value(&self) -> bool {
        // These three concern this client alone.
        let harmless = ["appName", "localThresholdMS", "maxIdleTimeMS"];
        self.treatment == Treatment::Applied && !harmless.contains(&self.name)
    }

    /// Returns the accepted values, if this one is not among them.
    pub(super) fn refused_value(&self, value: &str) -> Option<&'static str> {
        let (accepted, expected) = match self.accepts {
            Accepts::Text => (true, ""),
            Accepts::AppName => {
                let escapes = value.matches('%').count();
                let is_short = value.len() - 2 * escapes.min(value.len() / 3) <= APP_NAME_MAX;
                (is_short, "at most 128 bytes")
            }
            Accepts::Flag => (matches!(value, "true" | "false"), "true or false"),
            Accepts::Number => (value.parse::<u32>().is_ok(), "a whole number"),
        };
        (!accepted).then_some(expected)
    }

    /// Returns true if this value changes nothing.
    pub(super) fn is_harmless(&self, value: &str) -> bool {
        let mut harmless = self.harmless.iter();
        harmless.any(|known| known.eq_ignore_ascii_case(value))
    }

    /// Returns the notice of a value that is not applied, or that has a risk.
    pub(super) fn notice(&'static self) -> UriNotice {
        UriNotice {
            option: self.name,
            treatment: self.treatment,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The options of the specification ("List of specified options").
    const SPECIFIED: &str = "maxAdaptiveRetries enableOverloadRetargeting appname authMechanism \
        authMechanismProperties authSource compressors connectTimeoutMS directConnection \
        heartbeatFrequencyMS journal loadBalanced localThresholdMS maxIdleTimeMS maxPoolSize \
        maxConnecting maxStalenessSeconds minPoolSize proxyHost proxyPort proxyUsername \
        proxyPassword readConcernLevel readPreference readPreferenceTags replicaSet retryReads \
        retryWrites serverMonitoringMode serverSelectionTimeoutMS serverSelectionTryOnce \
        socketTimeoutMS srvMaxHosts srvServiceName ssl tls tlsAllowInvalidCertificates \
        tlsAllowInvalidHostnames tlsCAFile tlsCertificateKeyFile tlsCertificateKeyFilePassword \
        tlsDisableCertificateRevocationCheck tlsDisableOCSPEndpointCheck tlsInsecure w \
        waitQueueTimeoutMS wTimeoutMS zlibCompressionLevel timeoutMS wtimeout";

    #[test]
    fn each_option_of_the_specification_is_known() {
        let unknown = SPECIFIED.split_whitespace();
        let unknown: Vec<_> = unknown.filter(|n| UriOption::find(n).is_none()).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn no_name_is_used_twice() {
        let mut names = BTreeSet::new();
        for option in OPTIONS {
            for name in [option.name].iter().chain(option.aliases) {
                assert!(names.insert(name.to_ascii_lowercase()), "{name}");
            }
        }
    }

    #[test]
    fn a_misspelt_name_has_a_suggestion() {
        for (written, meant) in [
            ("replicatSet", Some("replicaSet")),
            ("authsoruce", Some("authSource")),
            ("connectTimeout", Some("connectTimeoutMS")),
            ("retryWrite", Some("retryWrites")),
            ("tlsCertificateFile", Some("tlsCertificateKeyFile")),
            ("nonsense", None),
        ] {
            assert_eq!(UriOption::nearest(written), meant, "{written}");
        }
    }
}
