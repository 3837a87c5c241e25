//! Sets the cfg `proof`, so that `crates/core` includes the modules of this package.

fn main() {
    println!("cargo::rustc-cfg=proof");
    // Prevents a compiler warning about a feature that `crates/core` checks and this package does
    // not declare.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"serde\"))");
}
