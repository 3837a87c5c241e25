use std::sync::LazyLock;

use self::Treatment::{Applied, AppliedWithRisk, Ignored, Overridden, Refused};

/// How leasehold treats an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Treatment {
    /// The driver applies the option.
    Applied,
    /// The driver applies the option, which has this risk.
    AppliedWithRisk(&'static str),
    /// leasehold overrides the option as described, because of the protocol or a configuration key.
    Overridden(&'static str),
    /// The option has no effect, for this reason.
    Ignored(&'static str),
    /// leasehold refuses the connection string, for this reason and with this remedy.
    Refused(&'static str),
}

/// An option of connection strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UriOption {
    /// The name in its usual spelling. Case does not matter.
    pub name: &'static str,
    /// How leasehold treats the option.
    pub treatment: Treatment,
    /// Alternative and deprecated names of the option.
    pub aliases: &'static [&'static str],
}

/// Maximum length of an application name that servers accept, in bytes.
pub(crate) const APP_NAME_MAX: usize = 128;
pub(crate) const LOAD_BALANCED: &str = "changes of the primary are not visible behind a load \
     balancer: remove the option, and name the members or the mongos";

/// The options in the drivers' specification, and options that only some drivers have. An option is
/// ignored only if it affects neither security nor the election of the leader.
const TREATMENTS: [(Treatment, &str); 25] = [
    (
        Applied,
        "appName authMechanism authMechanismProperties authSource directConnection \
         localThresholdMS maxIdleTimeMS replicaSet srvMaxHosts srvServiceName tls tlsCAFile \
         tlsCertificateKeyFile",
    ),
    (
        AppliedWithRisk("servers are not verified, so another machine can pose as MongoDB"),
        "tlsAllowInvalidCertificates tlsInsecure",
    ),
    (Overridden("20"), "maxConnecting maxPoolSize"),
    (Overridden("majority or linearizable"), "readConcernLevel"),
    (Overridden("mongodb.heartbeat"), "heartbeatFrequencyMS"),
    (
        Overridden("mongodb.operation_timeout"),
        "connectTimeoutMS serverSelectionTimeoutMS socketTimeoutMS timeoutMS waitQueueTimeoutMS \
         wTimeoutMS",
    ),
    (
        Overridden("no retries by the driver"),
        "enableOverloadRetargeting maxAdaptiveRetries retryReads retryWrites",
    ),
    (
        Overridden("reads from the primary"),
        "maxStalenessSeconds readPreference readPreferenceTags",
    ),
    (
        Overridden("stream for leases, poll for locks"),
        "serverMonitoringMode",
    ),
    (Overridden("w: majority, j: true"), "journal w"),
    (
        Ignored("connections are not compressed"),
        "compressors zlibCompressionLevel zstdCompressionLevel",
    ),
    (
        Ignored("connections are opened when they are needed"),
        "minPoolSize",
    ),
    (
        Ignored("UUIDs are always stored as BSON binary subtype 4"),
        "uuidRepresentation",
    ),
    (
        Ignored("it is an option of other drivers"),
        "acceptableLatencyMS auto_reconnect autoReconnect autoSelectFamily \
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
         useNewUrlParser useUnifiedTopology waitQueueMultiple waitQueueSize",
    ),
    (
        Ignored("server selection is always retried until its timeout"),
        "serverSelectionTryOnce",
    ),
    (
        Ignored("certificate revocation is not checked"),
        "tlsDisableCertificateRevocationCheck tlsDisableOCSPEndpointCheck",
    ),
    (Refused(LOAD_BALANCED), "loadBalanced"),
    (
        Refused(
            "certificate and key are read from one file: put both into one file, and set \
             tlsCertificateKeyFile",
        ),
        "tlsCertificateFile tlsPrivateKeyFile",
    ),
    (
        Refused(
            "server certificates are verified by default: remove the option, or write \
             tlsAllowInvalidCertificates=true to trust every server",
        ),
        "rejectUnauthorized sslValidate sslVerifyCertificate ssl_cert_reqs",
    ),
    (
        Refused(
            "connections through a SOCKS5 proxy are not supported: remove the option, and let the \
             network route the connections",
        ),
        "proxyHost proxyPassword proxyPort proxyUsername",
    ),
    (
        Refused(
            "encrypted keys are not supported: decrypt the key with openssl pkcs8 -topk8 -nocrypt",
        ),
        "tlsCertificateKeyFilePassword",
    ),
    (
        Refused(
            "host names are verified together with certificates: use a host name that the \
             certificate contains, or tlsInsecure, which verifies neither",
        ),
        "tlsAllowInvalidHostnames ssl_match_hostname checkServerIdentity",
    ),
    (
        Refused(
            "revocation lists are not supported, so a revoked certificate would be trusted: \
             remove the option, and replace the certificate authority instead",
        ),
        "tlsCRLFile",
    ),
    (
        Refused(
            "TLS versions, ciphers and server names cannot be set: remove the option, and \
             restrict them on the servers",
        ),
        "ciphers ecdhCurve secureProtocol servername",
    ),
    (Refused("write tlsCAFile instead"), "sslCA"),
];

const ALIASES: &str = "\
    connectTimeoutMS=connectTimeout heartbeatFrequencyMS=heartbeatInterval,heartbeatIntervalMS \
    journal=j maxStalenessSeconds=maxStaleness serverSelectionTimeoutMS=serverSelectionTimeout \
    socketTimeoutMS=socketTimeout tls=ssl tlsAllowInvalidCertificates=sslAllowInvalidCertificates \
    tlsAllowInvalidHostnames=sslAllowInvalidHostnames,sslInvalidHostNameAllowed \
    tlsCAFile=sslCertificateAuthorityFile tlsCertificateKeyFile=sslClientCertificateKeyFile \
    tlsCertificateKeyFilePassword=sslClientCertificateKeyPassword,sslPass,ssl_pem_passphrase \
    tlsInsecure=sslInsecure waitQueueTimeoutMS=waitQueueTimeout wTimeoutMS=wtimeout \
    tlsCRLFile=crl,sslCRL,ssl_crlfile sslCA=ca,ssl_ca_certs \
    tlsCertificateFile=cert,sslCert,ssl_certfile tlsPrivateKeyFile=key,pfx,sslKey,ssl_keyfile";

/// Values that match leasehold's own behavior, so they cause neither a notice nor a refusal.
const HARMLESS: &str = "\
    enableOverloadRetargeting=false journal=true loadBalanced=false maxAdaptiveRetries=0 \
    maxStalenessSeconds=-1 minPoolSize=0 readConcernLevel=majority,linearizable \
    readPreference=primary retryReads=false retryWrites=false serverSelectionTryOnce=false \
    tlsAllowInvalidCertificates=false tlsAllowInvalidHostnames=false \
    tlsDisableCertificateRevocationCheck=true tlsDisableOCSPEndpointCheck=true tlsInsecure=false \
    w=majority rejectUnauthorized=true sslValidate=true sslVerifyCertificate=true \
    ssl_cert_reqs=CERT_REQUIRED ssl_match_hostname=true checkServerIdentity=true";

/// All connection string options that leasehold knows.
pub static OPTIONS: LazyLock<Vec<UriOption>> = LazyLock::new(|| {
    // Every `leasehold lock` builds this table at startup, so `ALIASES` is split once instead of
    // once per option.
    let aliases: Vec<_> = pairs(ALIASES).collect();
    let named = TREATMENTS.iter().flat_map(|(treatment, names)| {
        let names = names.split_ascii_whitespace();
        names.map(|name| (name, *treatment))
    });
    let options = named.map(|(name, treatment)| UriOption {
        name,
        treatment,
        aliases: values_of(aliases.iter().copied(), name)
            .collect::<Vec<_>>()
            .leak(),
    });
    options.collect()
});

type Pair = (&'static str, &'static str);

fn pairs(text: &'static str) -> impl Iterator<Item = Pair> {
    let pairs = text.split_ascii_whitespace();
    pairs.filter_map(|pair| pair.split_once('='))
}

fn values_of(
    mut pairs: impl Iterator<Item = Pair>,
    name: &str,
) -> impl Iterator<Item = &'static str> {
    let values = pairs.find_map(|(of, values)| (of == name).then_some(values));
    values.into_iter().flat_map(|values| values.split(','))
}

impl UriOption {
    /// Returns the option with this name or alias.
    pub fn find(name: &str) -> Option<&'static Self> {
        let is_name = |known: &str| known.eq_ignore_ascii_case(name);
        let mut options = OPTIONS.iter();
        options.find(|option| is_name(option.name) || option.aliases.iter().any(|a| is_name(a)))
    }

    pub(super) fn nearest(name: &str) -> Option<&'static str> {
        /// Minimum similarity of a name that counts as a misspelling.
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
        let (similarity, known) = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (similarity >= SIMILARITY_MIN).then_some(known)
    }

    /// True if a missing value would make the driver trust other servers or log in as another user.
    pub(super) fn requires_value(&self) -> bool {
        let harmless = ["appName", "localThresholdMS", "maxIdleTimeMS"];
        self.treatment == Applied && !harmless.contains(&self.name)
    }

    pub(super) fn is_harmless(&self, value: &str) -> bool {
        values_of(pairs(HARMLESS), self.name).any(|known| known.eq_ignore_ascii_case(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The options in the drivers' specification (section "List of specified options").
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
    fn aliases_and_harmless_values_belong_to_options() {
        for (name, _) in pairs(ALIASES).chain(pairs(HARMLESS)) {
            let option = UriOption::find(name).map(|option| option.name);
            assert_eq!(option, Some(name));
        }
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

    /// Options that only some drivers have: Node.js, PyMongo, Java, Go, C# or C.
    const OF_DRIVERS: &str = "heartbeatIntervalMS promoteValues promoteLongs promoteBuffers \
        enableUtf8Validation zstdCompressionLevel ignoreUndefined serializeFunctions checkKeys raw \
        forceServerObjectId autoSelectFamily serverApi tz_aware datetime_conversion \
        unicode_decode_error_handler maxLifeTimeMS gssapiServiceName connectTimeout heartbeatTimeout \
        guids safe slaveOk canonicalizeHostname socketCheckIntervalMS";

    /// Options that decide which servers are trusted.
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
