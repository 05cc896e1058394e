// A reporter of node:test: one JSON line for each test with the file that it is in. Other lines are output of the tests.
export default async function* reporter(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { name, nesting, file, skip, todo, details } = data;
    const event = { name, nesting, file, good: type === 'test:pass', skip: skip !== undefined, todo: todo !== undefined };
    event.suite = details?.type === 'suite';
    event.seconds = (details?.duration_ms ?? 0) / 1000;
    yield JSON.stringify(event) + '\n';
  }
}
