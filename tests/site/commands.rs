//! Runs the commands on pages for newcomers. A page must mark each command that no test can run,
//! and give the reason.

use leasehold_testbed::{Kubernetes, ReplicaSet, SharedSet, run};

use crate::page::{blocks, pages, text};
use crate::session::{Session, like_the_repository};

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

/// Runs a page's commands in a directory that resembles the repository, with a replica set that all
/// pages share.
fn on_the_shared_set(page: &'static str) {
    run(async {
        let set = SET.get().await;
        let mut session = Session::new(page);
        like_the_repository(&mut session);
        session.set("LEASEHOLD_MONGODB__URI", set.uri());
        if !session.packages_are_available() {
            return;
        }
        let kubernetes = match page {
            OPERATOR | EXTERNAL_DNS => Some(Kubernetes::start().await),
            _ => None,
        };
        if let Some(kubernetes) = &kubernetes {
            let file = kubernetes.directory().join("kubeconfig");
            session.set("KUBECONFIG", file.display().to_string());
        }
        session.run();
    });
}

/// Loses the lock of a run with node-cron's calls, and ends this run during the next run.
const OVERLAP: &str = r#"
```js
// overlap.mjs
import { execFileSync } from "node:child_process";
import { coordinator, lockOf } from "./coordinator.mjs";

const [first, second] = ["sync:2026-01-01T00:00:00.000Z", "sync:2026-01-01T00:00:10.000Z"];
console.log(await coordinator.shouldRun(first, 1));
const lost = new Promise((resolve) => lockOf("sync").signal.addEventListener("abort", resolve));
execFileSync("leasehold", ["locks", "break", "sync", "--force", "--yes"], { stdio: "ignore" });
await lost;
console.log(await coordinator.shouldRun(second, 1));
const held = lockOf("sync");
await coordinator.onComplete(first).catch((error) => console.log(error.name));
console.log(held.isValid(), lockOf("sync") === held);
await coordinator.onComplete(second);
console.log(held.isValid(), lockOf("sync"));
```

```console
$ node overlap.mjs 2> overlap.log
true
true
LockLost
true true
false undefined
```
"#;

#[test]
fn a_run_of_node_cron_that_lost_its_lock_leaves_the_lock_of_the_next_run_alone() {
    run(async {
        let set = SET.get().await;
        let mut session = Session::new("docs/recipes/node.md");
        like_the_repository(&mut session);
        session.set("LEASEHOLD_MONGODB__URI", set.uri());
        session.set("LEASEHOLD_MONGODB__DATABASE", "overlap");
        if session.packages_are_available() {
            session.run_text(OVERLAP.to_owned());
        }
    });
}

/// These recipes also need an API server.
const OPERATOR: &str = "docs/recipes/operator.md";
const EXTERNAL_DNS: &str = "docs/recipes/external-dns.md";

/// Declares a test for each page whose commands run on the shared replica set.
macro_rules! pages_on_the_shared_set {
    ($($(#[$attribute:meta])* $name:ident => $page:literal,)*) => {
        const ON_THE_SHARED_SET: &[&str] = &[$($page),*];

        $($(#[$attribute])*
        #[test]
        fn $name() {
            on_the_shared_set($page);
        })*
    };
}

pages_on_the_shared_set! {
    the_recipe_for_cron_works => "docs/recipes/cron.md",
    the_recipe_for_kafka_works => "docs/recipes/kafka.md",
    the_recipe_for_flyway_works => "docs/recipes/flyway.md",
    the_recipe_for_node_works => "docs/recipes/node.md",
    the_recipe_for_migrations_works => "docs/recipes/migrations.md",
    the_recipe_for_java_migrations_works => "docs/recipes/java-migrations.md",
    the_recipe_for_asyncio_works => "docs/recipes/asyncio.md",
    the_recipe_for_collectors_works => "docs/recipes/collector.md",
    the_recipe_for_telegraf_works => "docs/recipes/telegraf.md",
    #[ignore = "Go builds for minutes: make recipes-third-party"]
    the_recipe_for_opentelemetry_works => "docs/recipes/opentelemetry.md",
    #[ignore = "Go builds for minutes: make recipes-third-party"]
    the_recipe_for_external_dns_works => "docs/recipes/external-dns.md",
    the_recipe_for_operators_works => "docs/recipes/operator.md",
    the_recipe_for_celery_works => "docs/recipes/celery-beat.md",
    the_recipe_for_spring_works => "docs/recipes/spring.md",
    the_migration_from_the_sidecar_works => "docs/migration/leader-elector.md",
    the_migration_from_shedlock_works => "docs/migration/shedlock.md",
    the_migration_from_a_hand_made_lock_works => "docs/migration/mongodb-locks.md",
    the_review_works => "docs/review.md",
}

/// The tutorial starts its own replica set.
const TUTORIAL: &str = "docs/tutorial.md";

#[test]
fn the_tutorial_on_a_laptop_works() {
    let mut session = Session::new(TUTORIAL);
    like_the_repository(&mut session);
    // The page shows which output is text and which is JSON.
    session.set("LEASEHOLD_LOG__FORMAT", "auto");
    session.run();
}

/// Returns true for pages on which every command must be run or marked.
fn is_for_newcomers(page: &str) -> bool {
    let starts = [
        "docs/tutorial",
        "docs/recipes",
        "docs/migration",
        "docs/review",
    ];
    page == "docs/README.md" || starts.iter().any(|start| page.starts_with(start))
}

#[test]
fn every_command_is_run_or_marked() {
    let mut seen = 0;
    for page in pages().iter().filter(|page| is_for_newcomers(page)) {
        let runs = ON_THE_SHARED_SET.contains(&page.as_str()) || page == TUTORIAL;
        let blocks = blocks(&text(page));
        let shell: Vec<_> = blocks.iter().filter(|block| block.is_shell()).collect();
        seen += shell.len();
        for block in &shell {
            let is_file = block.file().is_some();
            assert!(
                runs || block.is_marked_not_run() || is_file,
                "{page}:{}: no test runs this block, and the line before it gives no reason",
                block.line
            );
        }
        let any = shell
            .iter()
            .any(|block| !block.is_marked_not_run() && block.file().is_none());
        assert_eq!(any, runs, "{page}: a test without commands");
    }
    assert!(seen > 30, "{seen}");
}
