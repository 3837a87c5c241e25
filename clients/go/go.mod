// No module proxy or repository serves this path: .example is reserved (RFC 2606). Programs use a
// copy of this directory, see clients/README.md.
module leasehold.example/leasehold

go 1.21
