module fleetagent.test/tools/sigstore

go 1.26.0
