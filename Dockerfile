# A static agent in an image that holds nothing else but certificate authorities.
#
# glibc is linked in (crt-static); name resolution works without shared libraries as long as /etc/resolv.conf and the "files dns"
# order suffice, which is what a pod has. The target must be named so that proc macros stay dynamic.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ARG TARGET=x86_64-unknown-linux-gnu
RUN RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --package agent --bin fleetagent --target "$TARGET" \
 && install -D "target/$TARGET/release/fleetagent" /out/usr/bin/fleetagent \
 && install -d -m 1777 /out/tmp

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ /
# The user and group of Fleet's own agent image.
USER 1000:1000
ENV HOME=/tmp
ENTRYPOINT ["/usr/bin/fleetagent"]
