//! The options of connection strings, and what leasehold does with each.

use std::sync::LazyLock;

use self::Treatment::{Applied, AppliedWithRisk, Ignored, Overridden, Refused};
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

/// An option of connection strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// The longest application name that a server accepts, in bytes.
pub(crate) const APP_NAME_MAX: usize = 128;

const TIMEOUT: Treatment = Overridden("mongodb.operation_timeout");
const PRIMARY: Treatment = Overridden("reads from the primary");
const WRITES: Treatment = Overridden("w: majority, j: true");
const NO_RETRIES: Treatment = Overridden("no retries by the driver");
const POOL: Treatment = Overridden("20");
const COMPRESSION: Treatment = Ignored("connections are not compressed");
const REVOCATION: Treatment = Ignored("the revocation of certificates is not checked");
const OTHERS: Treatment = Ignored("it is an option of other drivers");
const UNVERIFIED: Treatment =
    AppliedWithRisk("servers are not verified, so another machine can pose as MongoDB");
pub(super) const LOAD_BALANCED: &str = "behind a load balancer no change of the primary can be \
     seen: remove it, and name the members or the mongos";
const HOST_NAMES: Treatment = Refused(
    "host names are verified together with certificates: use a host name that the certificate has, \
     or tlsInsecure, which verifies neither",
);
const VERIFIED: Treatment = Refused(
    "certificates of servers are verified by default: remove it, or write \
     tlsAllowInvalidCertificates=true to trust every server",
);
const REVOKED: Treatment = Refused(
    "lists of revoked certificates are not supported, and a revoked certificate would be trusted: \
     remove it, and replace the authority instead",
);
const AUTHORITY: Treatment = Refused("write tlsCAFile instead");
const ONE_KEY_FILE: Treatment = Refused(
    "certificate and key are read from one file: join both in one, and write tlsCertificateKeyFile",
);
const TLS_DEFAULTS: Treatment = Refused(
    "versions, ciphers and server names of TLS cannot be set: remove it, and restrict them on the \
     servers",
);
const PROXY: Treatment = Refused(
    "connections through a SOCKS5 proxy are not supported: remove it, and let the network route \
     them",
);

/// Options of single drivers that are ignored.
const OF_OTHER_DRIVERS: &str = "\
    acceptableLatencyMS auto_reconnect autoReconnect autoSelectFamily \
    autoSelectFamilyAttemptTimeout bsonRegExp bufferMaxEntries canonicalizeHostname \
    checkKeys connect connectWithNoPrimary datetime_conversion dbName domainsEnabled \
    emitError enableUtf8Validation family fieldsAsRaw forceServerObjectId fsync \
    gssapiServiceName guids ha haInterval heartbeatTimeout ignoreUndefined ipv6 \
    keepAlive keepAliveInitialDelay localThreshold loggerLevel maxIdleTime maxLifeTime \
    maxLifeTimeMS minHeartbeatFrequencyMS minInternalBufferSize monitorCommands noDelay \
    numberOfRetries poolSize promoteBuffers promoteLongs promoteValues raw \
    reconnectInterval reconnectTries safe secondaryAcceptableLatencyMS \
    serializeFunctions server_api serverApi slaveOk socketCheckIntervalMS \
    socketKeepAlive streamType tz_aware unicode_decode_error_handler useBigInt64 \
    useNewUrlParser useUnifiedTopology waitQueueMultiple waitQueueSize";

/// All options.
pub static OPTIONS: LazyLock<Vec<UriOption>> = LazyLock::new(|| {
    let others = OF_OTHER_DRIVERS.split_whitespace();
    let others = others.map(|name| option(name, OTHERS));
    KNOWN.iter().copied().chain(others).collect()
});

/// The options of the drivers' specification in alphabetical order, then options of single drivers.
/// An option is ignored only if it changes neither security nor the choice of the leader.
const KNOWN: &[UriOption] = &[
    option("appName", Applied),
    option("authMechanism", Applied),
    option("authMechanismProperties", Applied),
    option("authSource", Applied),
    option("compressors", COMPRESSION),
    option("connectTimeoutMS", TIMEOUT).aliases(&["connectTimeout"]),
    option("directConnection", Applied),
    option("enableOverloadRetargeting", NO_RETRIES).harmless(&["false"]),
    option("heartbeatFrequencyMS", Overridden("mongodb.heartbeat"))
        .aliases(&["heartbeatInterval", "heartbeatIntervalMS"]),
    option("journal", WRITES)
        .harmless(&["true"])
        .aliases(&["j"]),
    option("loadBalanced", Refused(LOAD_BALANCED)).harmless(&["false"]),
    option("localThresholdMS", Applied),
    option("maxAdaptiveRetries", NO_RETRIES).harmless(&["0"]),
    option("maxConnecting", POOL),
    option("maxIdleTimeMS", Applied),
    option("maxPoolSize", POOL),
    option("maxStalenessSeconds", PRIMARY)
        .harmless(&["-1"])
        .aliases(&["maxStaleness"]),
    option(
        "minPoolSize",
        Ignored("connections are opened when they are needed"),
    )
    .harmless(&["0"]),
    option("proxyHost", PROXY),
    option("proxyPassword", PROXY),
    option("proxyPort", PROXY),
    option("proxyUsername", PROXY),
    option("readConcernLevel", Overridden("majority or linearizable"))
        .harmless(&["majority", "linearizable"]),
    option("readPreference", PRIMARY).harmless(&["primary"]),
    option("readPreferenceTags", PRIMARY),
    option("replicaSet", Applied),
    option("retryReads", NO_RETRIES).harmless(&["false"]),
    option("retryWrites", NO_RETRIES).harmless(&["false"]),
    option(
        "serverMonitoringMode",
        Overridden("stream, or poll for a lock"),
    ),
    option("serverSelectionTimeoutMS", TIMEOUT).aliases(&["serverSelectionTimeout"]),
    option(
        "serverSelectionTryOnce",
        Ignored("servers are selected until the timeout"),
    )
    .harmless(&["false"]),
    option("socketTimeoutMS", TIMEOUT).aliases(&["socketTimeout"]),
    option("srvMaxHosts", Applied),
    option("srvServiceName", Applied),
    option("timeoutMS", TIMEOUT),
    option("tls", Applied).aliases(&["ssl"]),
    option("tlsAllowInvalidCertificates", UNVERIFIED)
        .harmless(&["false"])
        .aliases(&["sslAllowInvalidCertificates"]),
    option("tlsAllowInvalidHostnames", HOST_NAMES)
        .harmless(&["false"])
        .aliases(&["sslAllowInvalidHostnames", "sslInvalidHostNameAllowed"]),
    option("tlsCAFile", Applied).aliases(&["sslCertificateAuthorityFile"]),
    option("tlsCertificateKeyFile", Applied).aliases(&["sslClientCertificateKeyFile"]),
    option(
        "tlsCertificateKeyFilePassword",
        Refused("encrypted keys are not supported: decrypt it with openssl pkcs8 -topk8 -nocrypt"),
    )
    .aliases(&[
        "sslClientCertificateKeyPassword",
        "sslPass",
        "ssl_pem_passphrase",
    ]),
    option("tlsDisableCertificateRevocationCheck", REVOCATION).harmless(&["true"]),
    option("tlsDisableOCSPEndpointCheck", REVOCATION).harmless(&["true"]),
    option("tlsInsecure", UNVERIFIED)
        .harmless(&["false"])
        .aliases(&["sslInsecure"]),
    option(
        "uuidRepresentation",
        Ignored("documents of leasehold contain no UUIDs"),
    ),
    option("w", WRITES).harmless(&["majority"]),
    option("waitQueueTimeoutMS", TIMEOUT).aliases(&["waitQueueTimeout"]),
    option("wTimeoutMS", TIMEOUT).aliases(&["wtimeout"]),
    option("zlibCompressionLevel", COMPRESSION),
    option("zstdCompressionLevel", COMPRESSION),
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
        self.treatment == Applied && !harmless.contains(&self.name)
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
        for option in OPTIONS.iter() {
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
