# The image of `make image`, for those who rather build with a container engine: the same files, written by the same program.
#
# The base is an argument, so that who builds for others pins it by digest and from a registry of their own:
#   docker build --build-arg RUST=docker.io/library/rust:1.95.0-bookworm@sha256:... --tag fleetagent .
# Other architectures: --platform linux/arm64. The digest differs from that of `make image`: engines write times and layers of their own.
ARG RUST=docker.io/library/rust:1.95.0-bookworm
FROM ${RUST} AS build
# The toolchain of the base; rust-toolchain.toml would fetch another one.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo run --quiet --package image -- --root-only /out

FROM scratch
COPY --from=build /out/ /
# The user and group of Fleet's own agent image.
USER 1000:1000
ENV PATH=/usr/bin HOME=/tmp
ENTRYPOINT ["/usr/bin/fleetagent"]
