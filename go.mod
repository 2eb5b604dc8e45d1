module gotorch.dev

go 1.26.0

// What is built and cached there is no package of ours.
ignore ./build
