// packaging/owner writes this line from the address of the repository.
module leasehold.example/leasehold/clients/go

go 1.21
