//! Goal: the shipped filters and updates agree with the reference implementation of the lease,
//! which the simulator and the model use. Method: a small interpreter runs the shipped filters on
//! random documents. Ids come from a small set, so that many writes match.

use std::cmp::Ordering;

use mongodb::bson::spec::ElementType;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use proptest::prelude::*;

use super::{document, ended, identity, update};
use leasehold_core::election::{
    Acquisition, Claim, Declared, Found, Lease, Operation, Reservation, Revision, Session, Token,
    WallMillis,
};
use leasehold_reference::election as reference;

const NAME: &str = "orders";
const NOW: i64 = 5;

fn matches(filter: &Document, stored: &Document) -> bool {
    filter
        .iter()
        .all(|(path, condition)| match (path.as_str(), condition) {
            ("$expr", expression) => evaluate(expression, stored) == Some(Bson::Boolean(true)),
            (path, Bson::Document(operators)) => operators
                .iter()
                .all(|(operator, argument)| holds(operator, argument, at(stored, path))),
            (path, wanted) => equal(at(stored, path), wanted),
        })
}

fn at<'a>(stored: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        Some((outer, inner)) => stored.get_document(outer).ok().and_then(|d| d.get(inner)),
        None => stored.get(path),
    }
}

/// Evaluates an aggregation expression as the server would; `None` means missing.
fn evaluate(expression: &Bson, stored: &Document) -> Option<Bson> {
    let call = match expression {
        Bson::String(path) if path.starts_with('$') => return at(stored, &path[1..]).cloned(),
        Bson::Document(call) => call,
        literal => return Some(literal.clone()),
    };
    let (operator, argument) = call.iter().next().expect("an operator");
    let arguments: &[Bson] = argument
        .as_array()
        .map_or(std::slice::from_ref(argument), |list| list);
    let value = |index: usize| evaluate(&arguments[index], stored);
    let is_true = |argument: &Bson| evaluate(argument, stored) == Some(Bson::Boolean(true));
    let answer = match operator.as_str() {
        "$and" => arguments.iter().all(is_true),
        "$or" => arguments.iter().any(is_true),
        "$in" => {
            let list = arguments[1].as_array().expect("a list");
            list.contains(&value(0).expect("a value"))
        }
        "$type" => return Some(Bson::from(type_name(value(0).as_ref()))),
        "$ne" => value(0) != value(1),
        "$gte" => order(value(0).as_ref(), value(1).as_ref()).is_some_and(Ordering::is_ge),
        "$lte" => order(value(0).as_ref(), value(1).as_ref()).is_some_and(Ordering::is_le),
        other => panic!("unexpected operator: {other}"),
    };
    Some(Bson::Boolean(answer))
}

/// Compares two binary values or numbers. Other types need no order, because the filters also check
/// types.
fn order(left: Option<&Bson>, right: Option<&Bson>) -> Option<Ordering> {
    match (left?, right?) {
        (Bson::Binary(left), Bson::Binary(right)) => {
            let key = |b: &Binary| (b.bytes.len(), u8::from(b.subtype), b.bytes.clone());
            Some(key(left).cmp(&key(right)))
        }
        (left, right) => number(left)?.partial_cmp(&number(right)?),
    }
}

fn type_name(value: Option<&Bson>) -> &'static str {
    match value.map(Bson::element_type) {
        None => "missing",
        Some(ElementType::Null) => "null",
        Some(ElementType::EmbeddedDocument) => "object",
        Some(ElementType::Array) => "array",
        Some(ElementType::String) => "string",
        Some(ElementType::Boolean) => "bool",
        Some(ElementType::Int32) => "int",
        Some(ElementType::Int64) => "long",
        Some(ElementType::Double) => "double",
        Some(ElementType::Binary) => "binData",
        Some(other) => panic!("unexpected type: {other:?}"),
    }
}

fn holds(operator: &str, argument: &Bson, value: Option<&Bson>) -> bool {
    let arguments = || argument.as_array().expect("a list");
    match operator {
        "$ne" => !equal(value, argument),
        "$in" => arguments().iter().any(|wanted| equal(value, wanted)),
        "$lt" => order(value, Some(argument)).is_some_and(Ordering::is_lt),
        other => panic!("unexpected operator: {other}"),
    }
}

/// Numbers of different types can be equal, and a missing value equals null.
fn equal(value: Option<&Bson>, wanted: &Bson) -> bool {
    match value {
        None => *wanted == Bson::Null,
        Some(value) => value == wanted || number(value).is_some_and(|n| Some(n) == number(wanted)),
    }
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) if n.unsigned_abs() < 1 << 53 => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

/// Applies an operation with the shipped filter and update. Returns true if the filter matched.
fn shipped(stored: &mut Option<Document>, operation: &Operation) -> bool {
    let now = DateTime::from_millis(NOW);
    let write = document::write(NAME, operation, &identity(), None, now);
    let Some((filter, change)) = write else {
        let Operation::Create { revision, token } = operation else {
            return false;
        };
        // The index on _id rejects a second document.
        let absent = stored.is_none();
        stored.get_or_insert_with(|| document::create(NAME, *revision, *token));
        return absent;
    };
    let Some(stored) = stored.as_mut().filter(|stored| matches(&filter, stored)) else {
        return false;
    };
    update(stored, &change);
    true
}

/// One of only three ids, so that the requested id often equals the stored id.
fn id() -> impl Strategy<Value = [u8; 16]> {
    (1..4_u8).prop_map(|byte| [byte; 16])
}

fn revision() -> impl Strategy<Value = Revision> {
    id().prop_map(Revision::from_bytes)
}

fn token() -> impl Strategy<Value = Token> {
    (1..50_i64).prop_map(|token| Token::new(token).expect("not negative"))
}

fn reservation() -> impl Strategy<Value = Option<Reservation>> {
    proptest::option::of((0..70_u64).prop_map(|seconds| Reservation {
        identity: identity(),
        // The codec limits reservations to this maximum.
        duration:
            std::time::Duration::from_secs(seconds).min(leasehold_core::election::RESERVATION_MAX),
    }))
}

fn acquisition() -> impl Strategy<Value = Acquisition> {
    (id(), revision(), token(), revision()).prop_map(|(claim, revision, token, expected)| {
        Acquisition {
            claim: Claim::from_bytes(claim),
            revision,
            token,
            expected,
            session: Session::from_bytes([7; 16]),
            lease_duration: Declared { millis: 24_000 },
            renew_interval: (token.get() % 2 == 0).then_some(std::time::Duration::from_secs(3)),
        }
    })
}

fn session() -> impl Strategy<Value = Session> {
    id().prop_map(Session::from_bytes)
}

fn operation() -> impl Strategy<Value = Operation> {
    let chain = || proptest::collection::vec(revision(), 1..3);
    let claim = || id().prop_map(Claim::from_bytes);
    prop_oneof![
        1 => (revision(), token())
            .prop_map(|(revision, token)| Operation::Create { revision, token }),
        3 => acquisition().prop_map(Operation::Acquire),
        5 => (acquisition(), claim()).prop_map(|(acquisition, holder)| Operation::TakeOver {
            acquisition,
            holder,
            ended: ended(3),
        }),
        3 => (claim(), revision(), chain()).prop_map(|(claim, revision, chain)| {
            Operation::Renew { claim, revision, chain }
        }),
        3 => (claim(), revision(), chain(), reservation()).prop_map(
            |(claim, revision, chain, reserved_for)| Operation::Release {
                claim,
                revision,
                chain,
                ended: ended(3),
                reserved_for,
            }
        ),
        3 => (claim(), session(), 0..3_u32, proptest::option::weighted(0.3, session())).prop_map(
            |(holder, session, priority, replaces)| Operation::Register {
                holder,
                session,
                priority,
                replaces,
            }
        ),
        4 => session().prop_map(|session| Operation::Withdraw { session }),
    ]
}

/// An edit of the document between two writes, by an operator or by another version.
#[derive(Debug, Clone)]
enum Edit {
    Nothing,
    Set(&'static str, Bson),
    Unset(&'static str),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => Just(Edit::Nothing),
        2 => any::<bool>().prop_map(|paused| Edit::Set("paused", Bson::Boolean(paused))),
        1 => Just(Edit::Set("paused", Bson::Null)),
        1 => Just(Edit::Unset("paused")),
        1 => Just(Edit::Unset("holder")),
        1 => Just(Edit::Unset("reserved_for")),
        1 => Just(Edit::Unset("standby")),
        1 => Just(Edit::Set("token", Bson::Int32(7))),
        1 => Just(Edit::Set("schema", Bson::Int64(1))),
        1 => Just(Edit::Set("newer", Bson::Boolean(true))),
        1 => Just(Edit::Set("request", Bson::Document(
            doc! { "kind": "step_down", "token": 3_i64 }
        ))),
    ]
}

fn apply(edit: &Edit, stored: &mut Document) {
    match edit {
        Edit::Nothing => {}
        Edit::Set(key, value) => drop(stored.insert(*key, value.clone())),
        Edit::Unset(key) => drop(stored.remove(key)),
    }
}

fn read(stored: Option<&Document>) -> Option<Lease> {
    match stored.map(document::read) {
        None => None,
        Some(Found::Lease(lease)) => Some(lease),
        Some(other @ (Found::Missing | Found::Foreign(_))) => panic!("not a lease: {other:?}"),
    }
}

/// Edits that make a document foreign in ways that the filters check.
fn foreign() -> impl Strategy<Value = Edit> {
    prop_oneof![
        Just(Edit::Set("schema", Bson::Int32(2))),
        Just(Edit::Set("schema", Bson::String("1".to_owned()))),
        Just(Edit::Unset("schema")),
        Just(Edit::Set("kind", Bson::String("lock".to_owned()))),
        Just(Edit::Unset("kind")),
        Just(Edit::Set("schema", Bson::Double(1.0))),
        Just(Edit::Set("paused", Bson::Int32(1))),
        Just(Edit::Set("history", Bson::Null)),
        Just(Edit::Set("holder", Bson::String("a".to_owned()))),
        Just(Edit::Set(
            "holder",
            Bson::Document(doc! { "identity": "a" })
        )),
        Just(Edit::Set("token", Bson::Int64(-1))),
        Just(Edit::Set("token", Bson::Double(7.0))),
        Just(Edit::Set("token", Bson::String("7".to_owned()))),
        Just(Edit::Unset("token")),
        Just(Edit::Set("revision", Bson::String("1".to_owned()))),
        Just(Edit::Unset("revision")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shipped_filters_and_updates_are_those_of_the_reference(
        steps in proptest::collection::vec((edit(), operation()), 1..40),
    ) {
        let mut stored = None;
        for (edit, operation) in steps {
            if let Some(stored) = &mut stored {
                apply(&edit, stored);
            }
            let mut lease = read(stored.as_ref());
            let expected = reference::write(&mut lease, &identity(), WallMillis(NOW), &operation);
            let matched = shipped(&mut stored, &operation);
            prop_assert_eq!(matched, expected, "{:?} on {:?}", operation, stored);
            prop_assert_eq!(read(stored.as_ref()), lease, "{:?}", operation);
        }
    }

    #[test]
    fn i11_no_shipped_filter_matches_what_is_foreign(
        steps in proptest::collection::vec(operation(), 1..20),
        edit in foreign(),
        write in operation(),
    ) {
        let mut stored = Some(document::create(NAME, Revision::from_bytes([1; 16]), Token::ZERO));
        for operation in &steps {
            shipped(&mut stored, operation);
        }
        apply(&edit, stored.as_mut().expect("a document"));
        let before = stored.clone();
        prop_assert!(!shipped(&mut stored, &write), "{:?}", write);
        prop_assert_eq!(stored, before);
    }
}

#[test]
fn random_writes_match_often_enough_to_be_compared() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut matched = std::collections::BTreeMap::new();
    let mut stored = None;
    for number in 0..100_000 {
        // Without a reset, most writes would soon have a lower token than the document.
        if number % 20 == 0 {
            stored = None;
        }
        let tree = operation().new_tree(&mut runner);
        let operation = tree.expect("nothing is filtered").current();
        if shipped(&mut stored, &operation) {
            *matched.entry(operation.as_str()).or_insert(0) += 1;
        }
    }
    assert_eq!(matched.len(), 7, "{matched:?}");
    assert!(matched.values().all(|times| *times > 20), "{matched:?}");
}
