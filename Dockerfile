# Builds the image: a static daemon on distroless static, which runs as user 65532 and has no shell.
# docs/image.md explains the design and lists the required mounts.
#
# The defaults are tags, which can move. Releases use digests, NAME@sha256:…,
# and `make image` refuses a tag.
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-slim-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian13:nonroot
ARG LEASEHOLD_VERSION=0.1.0
ARG LEASEHOLD_REVISION=unknown
# Cargo features for cloud logins (docs/mongodb.md), such as aws-auth; none by default.
ARG FEATURES=

# Contains all steps that do not depend on the sources, so that the build cache keeps its result.
# This stage runs on the builder's platform, because the program is cross-compiled.
FROM --platform=${BUILDPLATFORM} ${RUST_IMAGE} AS dependencies
WORKDIR /source
# Embeds the list of crates in the binary, for scanners.
RUN cargo install cargo-auditable --version 0.7.7 --locked
# The target is static: musl from the Rust toolchain. The C compiler compiles ring and links the
# program.
ARG TARGETARCH
# hadolint ignore=DL3008
RUN own="$(dpkg --print-architecture)" && architecture="${TARGETARCH:-$own}" \
    && case "$architecture" in \
        amd64) machine=x86_64 package=x86-64 ;; \
        arm64) machine=aarch64 package=aarch64 ;; \
        *) echo "no such target: $architecture" >&2; exit 1 ;; \
    esac \
    && target="$machine-unknown-linux-musl" compiler="$machine-linux-gnu-gcc" \
    && if ! [ -d "$(rustc --print target-libdir --target "$target")" ]; then rustup target add "$target"; fi \
    && if [ "$architecture" != "$own" ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends "gcc-$package-linux-gnu" "libc6-dev-$architecture-cross" \
        && rm -rf /var/lib/apt/lists/*; \
    fi \
    && mkdir .cargo \
    && printf '[build]\ntarget = "%s"\n[target.%s]\nlinker = "%s"\n[env]\nCC_%s = "%s"\n' \
        "$target" "$target" "$compiler" "$target" "$compiler" > .cargo/config.toml
COPY Cargo.toml Cargo.lock ./
COPY crates/cli/Cargo.toml crates/cli/
COPY crates/clock/Cargo.toml crates/clock/
COPY crates/config/Cargo.toml crates/config/
COPY crates/core/Cargo.toml crates/core/
COPY crates/guard/Cargo.toml crates/guard/
COPY crates/host/Cargo.toml crates/host/
COPY crates/http/Cargo.toml crates/http/
COPY crates/job/Cargo.toml crates/job/
COPY crates/kubernetes/Cargo.toml crates/kubernetes/
COPY crates/metrics/Cargo.toml crates/metrics/
COPY crates/mongodb/Cargo.toml crates/mongodb/
COPY crates/operate/Cargo.toml crates/operate/
COPY crates/proof/Cargo.toml crates/proof/
COPY crates/proof/reference/Cargo.toml crates/proof/reference/
COPY crates/status/Cargo.toml crates/status/
COPY crates/supervisor/Cargo.toml crates/supervisor/
COPY packaging/Cargo.toml packaging/
COPY tests/nemesis/Cargo.toml tests/nemesis/
COPY tests/testbed/Cargo.toml tests/testbed/
COPY tests/trace-check/Cargo.toml tests/trace-check/
# Cargo requires a source for each target that a manifest names. The empty program is built only for
# its dependencies and then removed. Without the removal, the empty program would ship, because the
# real sources have older timestamps. `cargo clean` needs the option --target, because it ignores
# the target that the configuration sets.
ARG FEATURES
RUN mkdir -p src benches/figures crates/cli/src crates/clock/src crates/config/src crates/core/src crates/guard/src \
        crates/host/src crates/http/src crates/job/src crates/kubernetes/src crates/metrics/src crates/mongodb/src \
        crates/operate/src crates/proof/reference/src crates/status/src crates/supervisor/src packaging/src tests/nemesis/src tests/testbed/src \
        tests/trace-check/src \
    && touch crates/cli/src/lib.rs crates/clock/src/lib.rs crates/config/src/lib.rs crates/core/src/lib.rs \
        crates/guard/src/lib.rs crates/host/src/lib.rs crates/http/src/lib.rs crates/job/src/lib.rs \
        crates/kubernetes/src/lib.rs crates/metrics/src/lib.rs crates/mongodb/src/lib.rs crates/operate/src/lib.rs \
        crates/proof/reference/src/lib.rs crates/status/src/lib.rs crates/supervisor/src/lib.rs packaging/src/main.rs tests/nemesis/src/main.rs \
        tests/testbed/src/lib.rs tests/trace-check/src/lib.rs \
    && echo '//! Empty.' > src/lib.rs \
    && printf '//! Empty.\nfn main() {}\n' > src/main.rs \
    && echo 'fn main() {}' > benches/figures/main.rs \
    && cargo auditable build --release --locked --package leasehold --bin leasehold --features "$FEATURES" \
    && cargo clean --release --workspace --target "$(sed -n 's/^target = "\(.*\)"/\1/p' .cargo/config.toml)"

FROM dependencies AS build
COPY build.rs ./
COPY config config
COPY crates crates
COPY src src
# Declared here and not earlier, so that a new revision does not invalidate the cached dependencies.
ARG LEASEHOLD_VERSION
ARG LEASEHOLD_REVISION
# Checks that the program contains the version and revision in the labels. The program is not run,
# because it may be for another architecture.
RUN cargo auditable build --release --locked --package leasehold --bin leasehold --features "$FEATURES" \
    && mkdir -p /image/run/leasehold \
    && cp target/*-musl/release/leasehold /image/leasehold \
    && grep --text --quiet --fixed-strings "${LEASEHOLD_VERSION} (revision ${LEASEHOLD_REVISION})" /image/leasehold

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG LEASEHOLD_VERSION
ARG LEASEHOLD_REVISION
LABEL org.opencontainers.image.title="leasehold" \
      org.opencontainers.image.description="Leader election for replicated workloads, on the MongoDB they already have" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.source="https://leasehold.example/leasehold" \
      org.opencontainers.image.url="https://docs.leasehold.example" \
      org.opencontainers.image.documentation="https://docs.leasehold.example/image.html" \
      org.opencontainers.image.vendor="The leasehold authors" \
      org.opencontainers.image.authors="The leasehold authors <leasehold@leasehold.example>" \
      org.opencontainers.image.version="${LEASEHOLD_VERSION}" \
      org.opencontainers.image.revision="${LEASEHOLD_REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/leasehold/
# Allows tests without a volume: the image's user may not create this directory.
COPY --from=build --chown=65532:65532 /image/run/leasehold /run/leasehold
COPY --from=build /image/leasehold /leasehold
# The user is a number, so that the kubelet can verify that it is not root.
USER 65532:65532
STOPSIGNAL SIGTERM
# The kubelet probes /livez and /readyz.
HEALTHCHECK NONE
ENTRYPOINT ["/leasehold"]
CMD ["run"]
