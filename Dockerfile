# The image of `make image`, for those who rather build with a container engine: the same files, written by the same program.
#
# The base is pinned by digest, and an argument for those who have a registry of their own:
#   docker build --build-arg RUST=registry.example/rust:1.95.0-bookworm@sha256:... --tag fleetagent .
# Other architectures: --platform linux/arm64. The files are those of `make image` byte for byte, the digest is not: engines write times and layers of
# their own.
ARG RUST=docker.io/library/rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1
FROM ${RUST} AS build
# The toolchain of the base, which the name above says; rust-toolchain.toml would fetch the newest one.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo run --quiet --package image -- --root-only /out

FROM scratch
COPY --from=build /out/ /
# The user and group of Fleet's own agent image.
USER 1000:1000
# The allocator gives back what a burst took; see docs/operating.md.
ENV PATH=/usr/bin HOME=/tmp MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_MMAP_THRESHOLD_=131072
ENTRYPOINT ["/usr/bin/fleetagent"]
