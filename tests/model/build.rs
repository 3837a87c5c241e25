//! Compiles the planted bugs in: a line of `src/election/mutation.rs` each,
//! asleep unless an exploration wakes one. Nothing that ships has them, since
//! `leasehold` itself does not compile with this.

fn main() {
    println!("cargo::rustc-cfg=planted");
    println!("cargo::rerun-if-changed=build.rs");
}
