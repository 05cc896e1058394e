// A reporter of jasmine: one JSON document in the form of jest's, written where the parent inside looks for it.
const { writeFileSync } = require('node:fs');

const REPORT = '/tmp/etude-report';
const STATUS = { passed: 'passed', failed: 'failed' };

module.exports = class Reporter {
  constructor() {
    this.suites = [];
    this.files = new Map();
  }

  suiteStarted(suite) {
    this.suites.push(suite.description);
  }

  suiteDone() {
    this.suites.pop();
  }

  specDone(spec) {
    const name = spec.filename ?? '';
    if (!this.files.has(name)) this.files.set(name, []);
    this.files.get(name).push({
      ancestorTitles: [...this.suites],
      title: spec.description,
      status: STATUS[spec.status] ?? 'pending',
      duration: spec.duration ?? 0,
    });
  }

  jasmineDone() {
    const testResults = [...this.files].map(([name, assertionResults]) => ({ name, assertionResults }));
    writeFileSync(REPORT, JSON.stringify({ testResults }));
  }
};
