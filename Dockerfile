# The three binaries, static, in an image of nothing else. The BPF objects are committed, so no compiler for them is needed.
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=$(git describe --always) -t latch .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY bpf bpf
COPY cmd cmd
COPY plugin plugin
COPY shared shared
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=unknown
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ ./cmd/latch ./cmd/latchd ./cmd/latchctl

FROM scratch
COPY --from=build /out/ /
ENV PATH=/
ENTRYPOINT ["/latchd"]
