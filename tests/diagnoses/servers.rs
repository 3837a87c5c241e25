//! Situations in which a server is unreachable, or contradicts the URI.

use leasehold_testbed::FakeClock;

use crate::parts::{Parts, SET};
use crate::situation::Situation;

pub(crate) fn situations(parts: &Parts) -> Vec<Situation> {
    let open = parts.open.node(0).address();
    let guarded = parts.guarded.node(0).address();
    let standalone = parts.standalone.node(0).address();
    let full = parts.full.node(0).address();
    let deposed = parts.deposed.node(0).address();
    let (closed, web) = (parts.closed.number(), parts.web);
    let certificates = parts.guarded.certificates().unwrap();
    let tls = certificates.uri_options(true);
    let over_tls = |options: &str| format!("mongodb://{guarded}/?replicaSet={SET}&{options}");
    let ours = certificates.authority().display().to_string();
    let client = certificates.client().display().to_string();
    let mistaken = |which: usize| {
        let address = parts.mistaken[which].node(0).address();
        format!("mongodb://{address}/?{}", parts.issuer.uri_options(false))
    };
    let later = FakeClock::offset("+30y").unwrap_or_else(|failure| panic!("{failure}"));
    let of_set = |host: &str, set: &str| format!("mongodb://{host}/?replicaSet={set}");
    let closed = format!("127.0.0.1:{closed}");
    let held = parts.open.proxied_uri(&parts.holding);
    let cut = parts.open.proxied_uri(&parts.cutting);
    let alias = parts.alias;
    vec![
        Situation::locks("port closed", &of_set(&closed, SET)).says(&format!(
            "no primary: {closed}: connection refused: check host and port in the MongoDB URI"
        )),
        Situation::lock("port closed, with --wait", &of_set(&closed, SET), "waits")
            .flag("--wait=1s")
            .exits(69)
            .says("lock waits: gave up after ")
            .says(&format!("no primary: {closed}: connection refused")),
        Situation::lock(
            "port closed, without a bound on the wait",
            &of_set(&closed, SET),
            "patient",
        )
        .patient()
        .flag("--lease-duration=1s")
        .exits(69)
        .says("MongoDB call failed (attempt 1), retrying in ")
        .says("failing_for=")
        .says("lock patient: gave up after 1"),
        Situation::run("port closed, for a daemon", &of_set(&closed, SET), "unreached")
            .says("MongoDB read failed (attempt 1), retrying in 1s")
            .says(&format!("no primary: {closed}: connection refused"))
            .says("MongoDB read failed (attempt 2)")
            .never_says("no change stream"),
        Situation::locks("host name unknown", "mongodb://no-such-host.invalid/")
            .flag("--mongodb-operation-timeout=5s")
            .says("no-such-host.invalid:27017: cannot resolve the host name"),
        Situation::locks("SRV record missing", "mongodb+srv://cluster.no-such-host.invalid/")
            .says("cannot resolve the SRV record of cluster.no-such-host.invalid: check"),
        Situation::locks("port of a web server", &format!("mongodb://{web}/")).says(&format!(
            "{web}: the reply is not in MongoDB's protocol: check the port"
        )),
        Situation::locks("server that does not answer", &held).says(&format!(
            "no primary: no answer from 127.0.0.1:{}: check the host",
            parts.holding.port(0)
        )),
        Situation::locks("server that closes connections", &cut)
            .says("the server, or a proxy in front of it, closes each connection immediately: it may"),
        Situation::locks("server at its limit of connections", &format!("mongodb://{full}/"))
            // Usually the driver's monitor gets the error. If the monitor got the last free
            // connection, a call gets the error.
            .says("reached its limit of connections (maxConns, ulimit -n)")
            .never_says("TLS"),
        Situation::locks("no primary", &of_set(&deposed, SET))
            .says(&format!("no primary: {deposed} is a secondary")),
        Situation::lock(
            "the only member addressed directly, without a primary",
            &format!("mongodb://{deposed}/?directConnection=true"),
            "direct",
        )
        .patient()
        .flag("--wait=1s")
        .exits(69)
        .says("lock direct: gave up after ")
        .says("the server is not the primary: leasehold uses the server once it is the primary"),
        Situation::leases("another set's name", &of_set(&open, "rsWRONG")).says(&format!(
            "no primary: {open} is in replica set \"{SET}\", not \"rsWRONG\"; correct replicaSet"
        )),
        Situation::lock(
            "another set's name, for lock",
            &of_set(&open, "rsWRONG"),
            "set",
        )
        .exits(69)
        .says("lock set: gave up after ")
        .says(&format!(
            "{open} is in replica set \"{SET}\", not \"rsWRONG\""
        )),
        Situation::locks("standalone server with replicaSet in the URI", &of_set(&standalone, "rs0")).says(
            &format!("no primary: {standalone} is a standalone server, not in replica set \"rs0\""),
        ),
        Situation::locks(
            "TLS requested from a server without TLS",
            &format!("{}&{tls}", of_set(&open, SET)),
        )
        .says(&format!(
            "{open}: connection closed by the server: it may not use TLS (then remove tls=true)"
        )),
        Situation::locks("no TLS for a server that requires TLS", &of_set(&guarded, SET))
            .says("connection closed by the server: it may require TLS (tls=true)"),
        Situation::locks(
            "CA not trusted",
            &over_tls(&tls.replace(&ours, &client)),
        )
        .says("certificate is not signed by a trusted authority: check tlsCAFile"),
        Situation::locks("certificate expired", &over_tls(&tls))
            .env(later.variables())
            .says("the server's certificate has expired: renew it, or check this machine's clock"),
        Situation::locks(
            "certificate of another host",
            &format!("mongodb://{alias}/?directConnection=true&{tls}"),
        )
        .says(&format!(
            "{alias}: the server's certificate does not name this host"
        )),
        Situation::locks("CA certificate for a server", &mistaken(0)).says(
            "the server's certificate belongs to a certificate authority (CA:TRUE): issue one for the server \
             (CA:FALSE), signed by that authority",
        ),
        Situation::locks("client certificate for a server", &mistaken(1)).says(
            "the server's certificate is not valid for servers: issue one with the extended key usage \
             serverAuth",
        ),
        Situation::locks(
            "client certificate missing",
            &over_tls(&certificates.uri_options(false)),
        )
        .says("client certificate")
        .says("tlsCertificateKeyFile"),
        Situation::locks(
            "CA file missing",
            &over_tls(&tls.replace(&ours, "/nowhere/ca.pem")),
        )
        .says("TLS configuration refused: cannot read /nowhere/ca.pem: no such file or directory; correct tlsCAFile"),
        Situation::locks(
            "device in place of the CA file",
            &over_tls(&tls.replace(&ours, "/dev/null")),
        )
        .says("TLS configuration refused: cannot read /dev/null: it is not a regular file; correct tlsCAFile"),
        Situation::locks(
            "client certificate file missing",
            &over_tls(&tls.replace(&client, "/nowhere/client.pem")),
        )
        .says("TLS configuration refused: cannot read /nowhere/client.pem: no such file or directory; correct tlsCertificateKeyFile"),
    ]
}

pub(crate) fn frozen(parts: &Parts) -> Vec<Situation> {
    let uri = parts.deposed.uri();
    let address = parts.deposed.node(0).address();
    vec![Situation::locks("server frozen", &uri).says(&format!(
        "no primary: no answer from {address}: check the host"
    ))]
}
