//! The options of connection strings, and what leasehold does with each.

use super::UriNotice;

/// Treatment of an option by leasehold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Treatment {
    /// The driver applies it.
    Applied,
    /// The driver applies it, with this risk.
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
const HOST_NAMES: Treatment = Treatment::Refused(
    "host names are verified together with certificates: use a host name that the certificate has, \
     or tlsInsecure, which verifies neither",
);
const VERIFIED: Treatment = Treatment::Refused(
    "certificates of servers are verified by default: remove it, or write \
     tlsAllowInvalidCertificates=true to trust every server",
);
const REVOKED: Treatment = Treatment::Refused(
    "lists of revoked certificates are not supported, and a revoked certificate would be trusted: \
     remove it, and replace the authority instead",
);
const AUTHORITY: Treatment = Treatment::Refused("write tlsCAFile instead");
const ONE_KEY_FILE: Treatment = Treatment::Refused(
    "certificate and key are read from one file: join both in one, and write tlsCertificateKeyFile",
);
const TLS_DEFAULTS: Treatment = Treatment::Refused(
    "versions, ciphers and server names of TLS cannot be set: remove it, and restrict them on the \
     servers",
);
const PROXY: Treatment = Treatment::Refused(
    "connections through a SOCKS5 proxy are not supported: remove it, and let the network route \
     them",
);

/// All options: first the options of the drivers' specification in alphabetical order, then options
/// of single drivers. An option is ignored only if it changes neither security nor the choice of
/// the leader.
pub const OPTIONS: &[UriOption] = &[
    applied("appName", Accepts::AppName),
    applied("authMechanism", Accepts::Text),
    applied("authMechanismProperties", Accepts::Text),
    applied("authSource", Accepts::Text),
    option("compressors", COMPRESSION),
    option("connectTimeoutMS", TIMEOUT).aliases(&["connectTimeout"]),
    applied("directConnection", Accepts::Flag),
    option("enableOverloadRetargeting", NO_RETRIES).harmless(&["false"]),
    option(
        "heartbeatFrequencyMS",
        Treatment::Overridden("mongodb.heartbeat"),
    )
    .aliases(&["heartbeatInterval", "heartbeatIntervalMS"]),
    option("journal", WRITES)
        .harmless(&["true"])
        .aliases(&["j"]),
    option("loadBalanced", Treatment::Refused(LOAD_BALANCED)).harmless(&["false"]),
    applied("localThresholdMS", Accepts::Number),
    option("maxAdaptiveRetries", NO_RETRIES).harmless(&["0"]),
    option("maxConnecting", POOL),
    applied("maxIdleTimeMS", Accepts::Number),
    option("maxPoolSize", POOL),
    option("maxStalenessSeconds", PRIMARY)
        .harmless(&["-1"])
        .aliases(&["maxStaleness"]),
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
    option("serverSelectionTimeoutMS", TIMEOUT).aliases(&["serverSelectionTimeout"]),
    option(
        "serverSelectionTryOnce",
        Treatment::Ignored("servers are selected until the timeout"),
    )
    .harmless(&["false"]),
    option("socketTimeoutMS", TIMEOUT).aliases(&["socketTimeout"]),
    applied("srvMaxHosts", Accepts::Number),
    applied("srvServiceName", Accepts::Text),
    option("timeoutMS", TIMEOUT),
    applied("tls", Accepts::Flag).aliases(&["ssl"]),
    unverified("tlsAllowInvalidCertificates").aliases(&["sslAllowInvalidCertificates"]),
    option("tlsAllowInvalidHostnames", HOST_NAMES)
        .harmless(&["false"])
        .aliases(&["sslAllowInvalidHostnames", "sslInvalidHostNameAllowed"]),
    applied("tlsCAFile", Accepts::Text).aliases(&["sslCertificateAuthorityFile"]),
    applied("tlsCertificateKeyFile", Accepts::Text).aliases(&["sslClientCertificateKeyFile"]),
    option(
        "tlsCertificateKeyFilePassword",
        Treatment::Refused(
            "encrypted keys are not supported: decrypt it with openssl pkcs8 -topk8 -nocrypt",
        ),
    )
    .aliases(&[
        "sslClientCertificateKeyPassword",
        "sslPass",
        "ssl_pem_passphrase",
    ]),
    option("tlsDisableCertificateRevocationCheck", REVOCATION).harmless(&["true"]),
    option("tlsDisableOCSPEndpointCheck", REVOCATION).harmless(&["true"]),
    unverified("tlsInsecure").aliases(&["sslInsecure"]),
    option(
        "uuidRepresentation",
        Treatment::Ignored("documents of leasehold contain no UUIDs"),
    ),
    option("w", WRITES).harmless(&["majority"]),
    option("waitQueueTimeoutMS", TIMEOUT).aliases(&["waitQueueTimeout"]),
    option("wTimeoutMS", TIMEOUT).aliases(&["wtimeout"]),
    option("zlibCompressionLevel", COMPRESSION),
    option("zstdCompressionLevel", COMPRESSION),
    option("acceptableLatencyMS", OTHERS),
    option("auto_reconnect", OTHERS),
    option("autoReconnect", OTHERS),
    option("autoSelectFamily", OTHERS),
    option("autoSelectFamilyAttemptTimeout", OTHERS),
    option("bsonRegExp", OTHERS),
    option("bufferMaxEntries", OTHERS),
    option("canonicalizeHostname", OTHERS),
    option("checkKeys", OTHERS),
    option("connect", OTHERS),
    option("connectWithNoPrimary", OTHERS),
    option("datetime_conversion", OTHERS),
    option("dbName", OTHERS),
    option("domainsEnabled", OTHERS),
    option("emitError", OTHERS),
    option("enableUtf8Validation", OTHERS),
    option("family", OTHERS),
    option("fieldsAsRaw", OTHERS),
    option("forceServerObjectId", OTHERS),
    option("fsync", OTHERS),
    option("gssapiServiceName", OTHERS),
    option("guids", OTHERS),
    option("ha", OTHERS),
    option("haInterval", OTHERS),
    option("heartbeatTimeout", OTHERS),
    option("ignoreUndefined", OTHERS),
    option("ipv6", OTHERS),
    option("keepAlive", OTHERS),
    option("keepAliveInitialDelay", OTHERS),
    option("localThreshold", OTHERS),
    option("loggerLevel", OTHERS),
    option("maxIdleTime", OTHERS),
    option("maxLifeTime", OTHERS),
    option("maxLifeTimeMS", OTHERS),
    option("minHeartbeatFrequencyMS", OTHERS),
    option("minInternalBufferSize", OTHERS),
    option("monitorCommands", OTHERS),
    option("noDelay", OTHERS),
    option("numberOfRetries", OTHERS),
    option("poolSize", OTHERS),
    option("promoteBuffers", OTHERS),
    option("promoteLongs", OTHERS),
    option("promoteValues", OTHERS),
    option("raw", OTHERS),
    option("reconnectInterval", OTHERS),
    option("reconnectTries", OTHERS),
    option("safe", OTHERS),
    option("secondaryAcceptableLatencyMS", OTHERS),
    option("serializeFunctions", OTHERS),
    option("server_api", OTHERS),
    option("serverApi", OTHERS),
    option("slaveOk", OTHERS),
    option("socketCheckIntervalMS", OTHERS),
    option("socketKeepAlive", OTHERS),
    option("streamType", OTHERS),
    option("tz_aware", OTHERS),
    option("unicode_decode_error_handler", OTHERS),
    option("useBigInt64", OTHERS),
    option("useNewUrlParser", OTHERS),
    option("useUnifiedTopology", OTHERS),
    option("waitQueueMultiple", OTHERS),
    option("waitQueueSize", OTHERS),
    option("rejectUnauthorized", VERIFIED).harmless(&["true"]),
    option("sslValidate", VERIFIED).harmless(&["true"]),
    option("sslVerifyCertificate", VERIFIED).harmless(&["true"]),
    option("ssl_cert_reqs", VERIFIED).harmless(&["CERT_REQUIRED"]),
    option("ssl_match_hostname", HOST_NAMES).harmless(&["true"]),
    option("checkServerIdentity", HOST_NAMES).harmless(&["true"]),
    option("tlsCRLFile", REVOKED).aliases(&["crl", "sslCRL", "ssl_crlfile"]),
    option("sslCA", AUTHORITY).aliases(&["ca", "ssl_ca_certs"]),
    option("tlsCertificateFile", ONE_KEY_FILE).aliases(&["cert", "sslCert", "ssl_certfile"]),
    option("tlsPrivateKeyFile", ONE_KEY_FILE).aliases(&["key", "pfx", "sslKey", "ssl_keyfile"]),
    option("ciphers", TLS_DEFAULTS),
    option("ecdhCurve", TLS_DEFAULTS),
    option("secureProtocol", TLS_DEFAULTS),
    option("servername", TLS_DEFAULTS),
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

    /// Returns the accepted values, if this value is not accepted.
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

    /// The options of single drivers: Node.js, PyMongo, Java, Go, C# and C.
    const OF_DRIVERS: &str = "heartbeatIntervalMS promoteValues promoteLongs promoteBuffers \
        enableUtf8Validation zstdCompressionLevel ignoreUndefined serializeFunctions checkKeys raw \
        forceServerObjectId autoSelectFamily serverApi tz_aware datetime_conversion \
        unicode_decode_error_handler maxLifeTimeMS gssapiServiceName connectTimeout heartbeatTimeout \
        guids safe slaveOk canonicalizeHostname socketCheckIntervalMS";

    /// Options without which a server would be trusted that is not trusted with it, or the reverse.
    const SECURITY: &str = "sslValidate rejectUnauthorized sslVerifyCertificate ssl_cert_reqs \
        ssl_match_hostname checkServerIdentity tlsCRLFile sslCRL ssl_crlfile sslCA ssl_ca_certs sslCert \
        sslKey sslPass tlsCertificateFile tlsPrivateKeyFile sslInvalidHostNameAllowed servername";

    #[test]
    fn options_of_other_drivers_are_ignored_unless_they_concern_security() {
        for name in OF_DRIVERS.split_whitespace() {
            let treatment = UriOption::find(name).map(|option| option.treatment);
            let is_served = matches!(
                treatment,
                Some(Treatment::Ignored(_) | Treatment::Overridden(_))
            );
            assert!(is_served, "{name}: {treatment:?}");
        }
        for name in SECURITY.split_whitespace() {
            let treatment = UriOption::find(name).map(|option| option.treatment);
            let is_refused = matches!(treatment, Some(Treatment::Refused(_)));
            assert!(is_refused, "{name}: {treatment:?}");
        }
    }

    #[test]
    fn a_misspelt_name_has_a_suggestion() {
        for (written, meant) in [
            ("replicatSet", Some("replicaSet")),
            ("authsoruce", Some("authSource")),
            ("connectTimeouts", Some("connectTimeoutMS")),
            ("retryWrite", Some("retryWrites")),
            ("tlsCertificateKey", Some("tlsCertificateKeyFile")),
            ("nonsense", None),
        ] {
            assert_eq!(UriOption::nearest(written), meant, "{written}");
        }
    }
}
