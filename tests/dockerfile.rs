//! Tests that the Dockerfile's copies of values in other files are up to date. The Dockerfile does
//! not read these files itself, because a changed file would invalidate the cached layers that read
//! it.
//!
//! `make test-image` builds the Dockerfile and runs the image.

use std::path::Path;

const DOCKERFILE: &str = include_str!("../Dockerfile");
const DOCKERIGNORE: &str = include_str!("../.dockerignore");
const BASES: &str = include_str!("../packaging/bases.env");
const MAKEFILE: &str = include_str!("../Makefile");
const RELEASE: &str = include_str!("../.github/workflows/release.yml");
const MANIFEST: &str = include_str!("../Cargo.toml");
const TOOLCHAIN: &str = include_str!("../rust-toolchain.toml");

fn default_of(argument: &str) -> &'static str {
    let start = format!("ARG {argument}=");
    DOCKERFILE
        .lines()
        .find_map(|line| line.strip_prefix(start.as_str()))
        .expect("an argument with a default")
}

/// Returns the base image of releases.
fn base(argument: &str) -> &'static str {
    let start = format!("{argument}=");
    BASES
        .lines()
        .find_map(|line| line.strip_prefix(start.as_str()))
        .expect("a base image")
}

fn quoted(text: &'static str, start: &str) -> Vec<&'static str> {
    let line = text
        .lines()
        .find(|line| line.starts_with(start))
        .expect("a line that starts with this text");
    line.split('"').skip(1).step_by(2).collect()
}

fn copied() -> Vec<&'static str> {
    let mut sources = Vec::new();
    for line in DOCKERFILE.lines() {
        if let Some(words) = line.strip_prefix("COPY ")
            && !words.starts_with("--from=")
        {
            let mut words: Vec<_> = words.split_whitespace().collect();
            words.pop();
            sources.extend(words);
        }
    }
    sources
}

#[test]
fn the_image_builds_with_the_compiler_of_the_toolchain_file() {
    let channel = quoted(TOOLCHAIN, "channel = ")[0];
    let image = format!("docker.io/library/rust:{channel}-slim-bookworm");
    assert_eq!(default_of("RUST_IMAGE"), image);
    let container = format!(
        "image: {}",
        base("RUST_IMAGE").replace("docker.io/library/", "")
    );
    assert!(RELEASE.contains(&container), "{container} in release.yml");
}

#[test]
fn releases_use_the_default_base_images_by_digest() {
    for argument in ["RUST_IMAGE", "BASE_IMAGE"] {
        let (image, digest) = base(argument).split_once("@sha256:").expect("a digest");
        assert_eq!(image, default_of(argument));
        let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        assert!(
            digest.len() == 64 && digest.bytes().all(is_digit),
            "{digest}"
        );
    }
}

#[test]
fn both_builds_use_the_same_version_of_cargo_auditable() {
    let (_, rest) = DOCKERFILE
        .split_once("cargo install cargo-auditable --version ")
        .expect("the tool");
    let version = rest.split_whitespace().next().expect("a version");
    assert!(MAKEFILE.contains(&format!(" cargo-auditable@{version} ")));
}

#[test]
fn the_version_of_the_image_is_the_version_of_the_package() {
    assert_eq!(default_of("LEASEHOLD_VERSION"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_member_of_the_workspace_has_its_manifest_and_an_empty_source() {
    for member in quoted(MANIFEST, "members = ") {
        let manifest = format!("{member}/Cargo.toml");
        assert!(copied().contains(&manifest.as_str()), "COPY {manifest}");
        // A package that contains only tests has no library and no program.
        let files = ["src/lib.rs", "src/main.rs"].map(|file| format!("{member}/{file}"));
        let exists = |file: &&String| Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists();
        if let Some(source) = files.iter().find(exists) {
            assert!(DOCKERFILE.contains(&format!(" {source}")), "touch {source}");
        }
    }
}

#[test]
fn the_build_context_contains_exactly_the_copied_files() {
    let mut copied = copied();
    let mut sent: Vec<_> = DOCKERIGNORE
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    // A directory in the context includes all paths below it.
    copied.retain(|path| {
        let within = |sent: &&str| path.strip_prefix(*sent).is_some_and(|p| p.starts_with('/'));
        !sent.iter().any(within)
    });
    copied.sort_unstable();
    sent.sort_unstable();
    assert_eq!(sent, copied);
    assert!(DOCKERIGNORE.lines().any(|line| line == "*"));
}

/// The Dockerfile builds the dependencies from the manifests and empty sources, without tests and
/// examples. Cargo rejects a manifest that names a target whose source file does not exist.
#[test]
fn the_manifest_names_only_targets_with_an_empty_source() {
    for target in ["[[test]]", "[[example]]"] {
        assert!(!MANIFEST.contains(target), "{target} breaks the image");
    }
    assert!(DOCKERFILE.contains("src/main.rs") && DOCKERFILE.contains("benches/figures/main.rs"));
}

/// `cargo clean` without `--target` would not clean a target triple that is set only in Cargo's
/// configuration. Cargo would then keep the program built from the empty source, because that
/// program is newer than the real sources.
#[test]
fn the_empty_program_is_removed_for_its_target() {
    let clean = DOCKERFILE
        .lines()
        .find(|line| line.contains("&& cargo clean"));
    let clean = clean.expect("a line that runs cargo clean");
    assert!(clean.contains(" --workspace --target "), "{clean}");
}
