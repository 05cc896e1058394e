// A reporter of node:test: one JSON line for each test, whose file is told. The output of tests is no line of ours.
export default async function* reporter(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { name, nesting, file, skip, todo, details } = data;
    const told = { name, nesting, file, good: type === 'test:pass', skip: skip !== undefined, todo: todo !== undefined };
    told.suite = details?.type === 'suite';
    told.seconds = (details?.duration_ms ?? 0) / 1000;
    yield JSON.stringify(told) + '\n';
  }
}
