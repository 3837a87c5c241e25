//! Goal: every wrong option is reported before the driver connects, with a remedy and without a
//! password.

use super::*;

fn problem(uri: &str) -> Result<(), UriProblem> {
    ConnectionUri::parse(uri).map(drop)
}

#[test]
fn problems_of_connection_strings_are_distinguished() {
    use UriProblem::*;
    let unknown = |name: &str, nearest| Unknown(name.to_owned(), nearest);
    let typed = |name, why: &str| Rejected(vec![name], Some(why.to_owned()));
    for (uri, expected) in [
        ("mongodb://h", Ok(())),
        (
            "mongodb://u:p%40ss@a:27017,b:27018/?replicaSet=rs0&tls=true",
            Ok(()),
        ),
        ("mongodb+srv://cluster.example.net/", Ok(())),
        ("", Err(Scheme)),
        ("http://h", Err(Scheme)),
        ("MONGODB://h", Err(Scheme)),
        ("mongodb://h \n", Err(Whitespace)),
        ("mongodb://u:%ü@h", Err(NotAscii)),
        ("mongodb://", Err(Malformed)),
        ("mongodb://h::1", Err(Malformed)),
        ("mongodb://h:99999", Err(Port)),
        ("mongodb://u:p@h:1,h:0/d", Err(Port)),
        ("mongodb://u:99999/x@h", Err(Malformed)),
        ("mongodb://u:p/ss@h", Err(Malformed)),
        ("mongodb://u:p@ss@h", Err(Malformed)),
        ("mongodb://h/?loadBalanced=false", Ok(())),
        ("mongodb://h/?nonsense=1", Err(unknown("nonsense", None))),
        (
            "mongodb://h/?tlsCAFile=/ca.pem&authSource=%24external&replicatSet=rs0",
            Err(unknown("replicatSet", Some("replicaSet"))),
        ),
        (
            "mongodb://h/?w=1&tls=maybe",
            Err(typed(
                "tls",
                "connection string `tls` option must be a boolean",
            )),
        ),
        (
            "mongodb://h/?SSL=1",
            Err(typed(
                "tls",
                "connection string `tls` option must be a boolean",
            )),
        ),
        (
            "mongodb://h/?maxIdleTimeMS=-1",
            Err(typed(
                "maxIdleTimeMS",
                "connection string `maxidletimems` option must be a non-negative integer",
            )),
        ),
        ("mongodb://h/?replicaSet", Err(NoValue("replicaSet"))),
        ("mongodb://h/?replicaSet=", Err(NoValue("replicaSet"))),
        ("mongodb://h/?tls=", Err(NoValue("tls"))),
        ("mongodb://h/?ssl=", Err(NoValue("tls"))),
        (
            "mongodb://h/?directConnection=",
            Err(NoValue("directConnection")),
        ),
        ("mongodb+srv://h/?srvMaxHosts=", Err(NoValue("srvMaxHosts"))),
        ("mongodb://h/?authSource=", Err(NoValue("authSource"))),
        ("mongodb://h/?tls=true&ssl=true&TLS=true", Ok(())),
        ("mongodb://h/?tls=true&ssl=false", Err(Ambiguous("tls"))),
        (
            "mongodb://h/?replicaSet=a&replicaset=b",
            Err(Ambiguous("replicaSet")),
        ),
        ("mongodb://h/?w=1&&wtimeout=5&wtimeoutMS=10&", Ok(())),
        (
            "mongodb://a,b/?directConnection=true",
            Err(Rejected(vec!["directConnection"], None)),
        ),
        (
            "mongodb+srv://c.example.net/?directConnection=true",
            Err(Rejected(vec!["directConnection"], None)),
        ),
        (
            "mongodb://h/?srvServiceName=x",
            Err(Rejected(vec!["srvServiceName"], None)),
        ),
        (
            "mongodb://h/?tls=false&tlsCAFile=/ca.pem",
            Err(Rejected(vec!["tls", "tlsCAFile"], None)),
        ),
        (
            "mongodb://h/?tlsInsecure=true&tlsAllowInvalidCertificates=true",
            Err(Rejected(
                vec!["tlsInsecure", "tlsAllowInvalidCertificates"],
                None,
            )),
        ),
        (
            "mongodb://u:p@h/?authMechanism=MONGODB-CR",
            Err(Value("authMechanism", MECHANISMS)),
        ),
        (
            "mongodb://u:p@h/?authMechanism=SCRAM-SHA-512",
            Err(Rejected(vec!["authMechanism"], None)),
        ),
        ("mongodb://@h/?authMechanism=MONGODB-X509", Ok(())),
        ("mongodb://h/?replicaset=my@set", Ok(())),
    ] {
        assert_eq!(problem(uri), expected, "{uri}");
    }
}

#[test]
fn a_part_of_a_password_is_not_taken_for_an_option() {
    for uri in [
        "mongodb://u:1234?x&hunter=2@h",
        "mongodb://u:p?hunter=2@h/?tls=maybe",
        "mongodb://u:p?hunter2@h",
        "mongodb://u:p?tls=hunter2@h/",
        "mongodb://h/?hunter2",
        "mongodb://h/?hunter-2=1",
    ] {
        assert_eq!(problem(uri), Err(UriProblem::Malformed), "{uri}");
    }
}

#[test]
fn a_refused_option_is_named_with_its_remedy() {
    let mut refused = 0;
    for option in OPTIONS.iter() {
        let Treatment::Refused(why) = option.treatment else {
            continue;
        };
        for name in [option.name].iter().chain(option.aliases) {
            let name = name.to_uppercase();
            let found = problem(&format!("mongodb://h/?{name}=hunter2"));
            let expected = UriProblem::Refused(option.name, why);
            assert_eq!(found, Err(expected.clone()));
            let text = expected.to_string();
            let start = format!("has the option {}: ", option.name);
            assert!(
                text.starts_with(&start) && text.len() > start.len() + 20,
                "{text}"
            );
            refused += 1;
        }
    }
    assert!(refused >= 8, "{refused}");
}

#[test]
fn options_that_are_not_applied_are_noticed_once_each_and_kept_from_the_driver() {
    let of = |options: &str| {
        let uri = ConnectionUri::parse(&format!("mongodb://u:p@a,b/db?{options}"));
        let uri = uri.unwrap_or_else(|problem| panic!("{options}: {problem}"));
        let notices: Vec<_> = uri.notices().iter().map(ToString::to_string).collect();
        (uri.driver, notices)
    };
    let driver_of = |options: &str| {
        let uri = format!("mongodb://u:p@a,b/db{options}");
        ConnectionString::parse(uri).expect("a connection string")
    };
    let plain = driver_of("");
    // Connection strings from Atlas and in compose files often contain these options.
    let (driver, notices) = of("retryWrites=true&w=majority&appName=Cluster0&RETRYWRITES=true");
    assert_eq!(driver, driver_of("?appName=Cluster0"));
    assert_eq!(notices, ["retryWrites (no retries by the driver)"]);
    let (driver, notices) = of("compressors=zstd,zlib&uuidRepresentation=standard&connect=direct");
    assert_eq!(driver, plain);
    assert_eq!(
        notices,
        [
            "compressors: connections are not compressed",
            "uuidRepresentation: UUIDs are always stored as BSON binary subtype 4",
            "connect: it is an option of other drivers",
        ]
    );
    let (driver, notices) = of("journal=&maxIdleTimeMS=&w=0");
    assert_eq!(driver, plain);
    assert_eq!(
        notices,
        [
            "journal: it has no value",
            "maxIdleTimeMS: it has no value",
            "w (w: majority, j: true)",
        ]
    );
    let harmless = "w=majority&journal=true&j=true&readPreference=PRIMARY&retryReads=false\
                    &loadBalanced=false&tlsAllowInvalidHostnames=false&minPoolSize=0";
    assert_eq!(of(harmless), (plain.clone(), Vec::new()));
    let (driver, notices) = of("tlsInsecure=true");
    assert_eq!(driver, driver_of("?tlsInsecure=true"));
    assert_eq!(notices.len(), 1);
    let aliases = "sslCertificateAuthorityFile=/a&sslClientCertificateKeyFile=/b&ssl=true";
    let (driver, notices) = of(aliases);
    let expected = driver_of("?tlsCAFile=/a&tlsCertificateKeyFile=/b&tls=true");
    assert_eq!((driver, notices), (expected, Vec::new()));
}

#[test]
fn an_application_name_that_servers_refuse_is_refused() {
    let with = |name: String| problem(&format!("mongodb://h/?appName={name}"));
    assert_eq!(with("a".repeat(128)), Ok(()));
    assert_eq!(with("%20".repeat(128)), Ok(()));
    let expected = Err(UriProblem::Value("appName", "at most 128 bytes"));
    assert_eq!(with("a".repeat(129)), expected);
    assert_eq!(with("%20".repeat(129)), expected);
}

#[test]
fn a_login_that_is_not_built_is_named_with_its_feature() {
    let login = |value: &str| problem(&format!("mongodb://h/?authMechanism={value}"));
    let oidc = |properties: &str| {
        login(&format!(
            "MONGODB-OIDC&authMechanismProperties={properties}"
        ))
    };
    let expected = |built, login, feature| match built {
        true => Ok(()),
        false => Err(UriProblem::Login(login, feature)),
    };
    for (found, expected) in [
        (
            login("MONGODB-AWS"),
            expected(cfg!(feature = "aws-auth"), "MONGODB-AWS", "aws-auth"),
        ),
        (
            oidc("ENVIRONMENT:azure,TOKEN_RESOURCE:x"),
            expected(
                cfg!(feature = "azure-oidc"),
                "MONGODB-OIDC for Azure",
                "azure-oidc",
            ),
        ),
        (
            oidc("TOKEN_RESOURCE:x,ENVIRONMENT:gcp"),
            expected(
                cfg!(feature = "gcp-oidc"),
                "MONGODB-OIDC for Google Cloud",
                "gcp-oidc",
            ),
        ),
        (oidc("ENVIRONMENT:k8s"), Ok(())),
        (login("GSSAPI"), Err(UriProblem::Kerberos)),
    ] {
        assert_eq!(found, expected);
    }
    let text = UriProblem::Login("MONGODB-AWS", "aws-auth").to_string();
    assert!(
        text.contains("build leasehold with --features aws-auth"),
        "{text}"
    );
}

#[test]
fn neither_debug_nor_a_problem_shows_the_password() {
    let uri = ConnectionUri::parse("mongodb://u:hunter2@h/?w=1").expect("a string");
    assert!(!format!("{uri:?}").contains("hunter2"));
    assert!(!uri.describe().contains("hunter2"));
}

#[test]
fn a_connection_string_is_described_by_its_servers_set_login_and_encryption() {
    for (uri, described) in [
        ("mongodb://h/", "1 server, no replica set, no user, no TLS"),
        (
            "mongodb://me:x@a,b:27018/?replicaSet=rs0&tls=true",
            "2 servers, replica set \"rs0\", user \"me\", TLS",
        ),
        (
            "mongodb+srv://c.example.net/?authMechanism=MONGODB-X509",
            "servers from the SRV record of c.example.net, no replica set, X.509 login, TLS",
        ),
        (
            "mongodb+srv://c.example.net/?tls=false",
            "servers from the SRV record of c.example.net, no replica set, no user, no TLS",
        ),
    ] {
        let uri = ConnectionUri::parse(uri).expect("a string");
        assert_eq!(uri.describe(), described);
    }
}
